// Command fuzz runs the fuzz targets of the tree one after the other, says in a line each what they did, and ends with the
// first that breaks. `make fuzz` calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"time"

	"github.com/ringfleet/ringfleet/hack/fuzz/target"
	"github.com/ringfleet/ringfleet/hack/image/repo"
	"github.com/ringfleet/ringfleet/hack/program"
)

func main() { os.Exit(program.Run("fuzz", run)) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	spent := flags.String("time", "60s", "how long each target runs, or how many inputs it tries, such as 1000x")
	only := flags.String("only", "", "run only targets whose name or folder this regular expression matches")
	parallel := flags.Int("parallel", runtime.GOMAXPROCS(0), "how many processes try inputs at once")
	list := flags.Bool("list", false, "print the targets and run none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	root, err := repo.Root(".")
	if err != nil {
		return err
	}
	targets, err := target.Find(root, wanted)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return fmt.Errorf("no fuzz target is called, or is in, %q", *only)
	}
	for _, t := range targets {
		if *list {
			fmt.Fprintf(out, "%-28s %s\n", t.Name, t.Dir)
			continue
		}
		began := time.Now()
		r, err := target.Run(ctx, target.Settings{Root: root, Time: *spent, Parallel: *parallel}, t)
		if err != nil {
			fmt.Fprint(out, r.Output)
			return err
		}
		fmt.Fprintf(out, "%-28s %-28s %10d executions, %4d new inputs, %3.0f s\n", t.Name, t.Dir, r.Executions, r.New, time.Since(began).Seconds())
	}
	return nil
}
