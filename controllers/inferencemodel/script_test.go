package inferencemodel

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the transcripts and golden files in testdata")

// playTranscript runs every line of a transcript that is no comment and no answer, and compares what do answers with the
// lines that begin with ">" after it. With -update the file is rewritten.
func playTranscript(t *testing.T, path string, do func(words []string) (answers []string)) {
	t.Helper()
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	lines := bufio.NewScanner(strings.NewReader(string(have)))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, ">") {
			continue
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, a := range do(strings.Fields(line)) {
			fmt.Fprintln(&out, "> "+a)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if out.String() != string(have) {
		t.Errorf("%s differs; run the test with -update and read the diff. Now:\n%s", path, out.String())
	}
}
