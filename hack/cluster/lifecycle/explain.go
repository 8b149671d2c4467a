package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringfleet/ringfleet/hack/cluster/member"
)

// memberError is an error that one member's logs explain.
type memberError struct {
	member string
	err    error
}

func (e *memberError) Error() string { return e.err.Error() }

// logLines is how many lines of a log an explanation shows.
const logLines = 15

// explain adds to an error which component is behind it, the last lines of its log, and where the log is.
func (c *Cluster) explain(err error) error {
	var m *memberError
	if !errors.As(err, &m) {
		return err
	}
	dir := member.Dir(c.Settings, m.member)
	st, readErr := member.ReadStatus(dir)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	component, why := suspect(st)
	file := filepath.Join(dir, member.LogDir, component+".log")
	if component == "" {
		file = member.InitLog(dir)
	}
	text, readErr := os.ReadFile(file)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	return fmt.Errorf("%w\n%s: %s\nlast lines of %s:\n%s", err, m.member, why, file, lastLines(string(text), logLines))
}

// suspect is the component that most likely keeps a member from working: one that ended, else the one that
// start-up waits for, else the first, else the init itself ("").
func suspect(st member.Status) (component, why string) {
	for _, c := range st.Components {
		if c.Exits > 0 {
			return c.Name, fmt.Sprintf("component %s ended %d times, last by %s", c.Name, c.Exits, c.LastExit)
		}
	}
	if st.Waiting != "" {
		return st.Waiting, "component " + st.Waiting + " is not ready"
	}
	if len(st.Components) > 0 {
		return st.Components[len(st.Components)-1].Name, "every component runs"
	}
	return "", "its init did not start a component"
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}
