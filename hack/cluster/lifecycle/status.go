package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
	"github.com/ringfleet/ringfleet/hack/cluster/member"
)

// row is one member in the table of Status.
type row struct {
	name, address, pods string
	pid                 int
	started, linked     bool
	ready               string
	exits               int
}

// Status prints the members, what is known of each, and where everything is.
func (c *Cluster) Status(ctx context.Context) error {
	if err := c.Load(); err != nil {
		return err
	}
	ready := map[string]bool{}
	api, err := c.client()
	if err == nil {
		ready, err = api.NodesReady(ctx)
	}
	rows, rowErr := c.rows(ctx, ready, err == nil)
	if rowErr != nil {
		return rowErr
	}
	if _, err := fmt.Fprint(c.Out, table(rows)); err != nil {
		return err
	}
	if err != nil {
		c.say("API server: %v", err)
	}
	c.say("KUBECONFIG=%s", c.Kubeconfig())
	c.say("logs: %s", c.file("members", "*", member.LogDir, "*.log"))
	return nil
}

func (c *Cluster) rows(ctx context.Context, ready map[string]bool, answered bool) ([]row, error) {
	var out []row
	for _, name := range c.Settings.Members() {
		r := row{name: name, address: c.Settings.IP(name).String(), linked: true, ready: "-"}
		dir := member.Dir(c.Settings, name)
		var err error
		if r.pid, err = member.PID(dir); err != nil {
			return nil, err
		}
		if r.started, err = member.Started(dir); err != nil {
			return nil, err
		}
		st, err := member.ReadStatus(dir)
		if err != nil {
			return nil, err
		}
		for _, k := range st.Components {
			r.exits += k.Exits
		}
		if name != config.Hub {
			r.pods = c.Settings.Pods(name).String()
			if r.linked, err = member.LinkUp(ctx, c.Settings, name); err != nil {
				return nil, err
			}
			if answered {
				r.ready = map[bool]string{true: "yes", false: "no"}[ready[name]]
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// table renders the rows.
func table(rows []row) string {
	lines := []string{"MEMBER\tSTATE\tPID\tREADY\tADDRESS\tPODS\tCOMPONENTS ENDED"}
	for _, r := range rows {
		state := "running"
		switch {
		case r.pid == 0:
			state = "gone"
		case !r.started:
			state = "half started"
		case !r.linked:
			state = "cut off"
		}
		pid, pods := "-", "-"
		if r.pid != 0 {
			pid = fmt.Sprint(r.pid)
		}
		if r.pods != "" {
			pods = r.pods
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%d", r.name, state, pid, r.ready, r.address, pods, r.exits))
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, strings.Join(lines, "\n")) // a builder never refuses a write
	_ = w.Flush()
	return b.String()
}
