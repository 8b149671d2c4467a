package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/hack/demo/ask"
)

// Bounds of waiting.
const (
	readyWithin  = 10 * time.Minute
	answerWithin = 2 * time.Minute
	dialWithin   = 3 * time.Second
	poll         = time.Second
)

func (d *Demo) apply(ctx context.Context, out io.Writer) error {
	text, err := d.kubectl(ctx, "-n", Namespace, "apply", "--server-side", "--force-conflicts", "-f", Sample)
	fmt.Fprintf(out, "      %s\n", strings.TrimSpace(string(text)))
	return err
}

// wait waits until the model is Ready, and prints each change on the way.
func (d *Demo) wait(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	t := d.Clock.NewTicker(poll)
	defer t.Stop()
	last := ""
	for {
		m, err := d.model(ctx)
		if err != nil {
			return err
		}
		ready, line := Progress(m)
		if line != last {
			fmt.Fprintln(out, line)
			last = line
		}
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("model %s is not Ready after %s: %s", Model, readyWithin, strings.TrimSpace(last))
		case <-t.C():
		}
	}
}

func (d *Demo) model(ctx context.Context) (*v1alpha1.InferenceModel, error) {
	m := &v1alpha1.InferenceModel{}
	return m, d.get(ctx, m, "inferencemodel", Model)
}

func (d *Demo) get(ctx context.Context, into any, kind, name string) error {
	text, err := d.kubectl(ctx, "-n", Namespace, "get", kind, name, "-o", "json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	return nil
}

// Progress says whether m is Ready as its spec stands now, and what a user may know of the way there.
func Progress(m *v1alpha1.InferenceModel) (ready bool, lines string) {
	c := meta.FindStatusCondition(m.Status.Conditions, string(v1alpha1.Ready))
	if c == nil || c.ObservedGeneration != m.Generation {
		return false, "      the manager has not seen the model yet"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "      Ready=%s %s, in the ring: %s", c.Status, c.Reason, orDash(m.Status.InRing))
	if c.Message != "" {
		fmt.Fprintf(&b, ": %s", c.Message)
	}
	for _, w := range m.Status.Workers {
		fmt.Fprintf(&b, "\n        %s on %s: %s", w.Name, orDash(w.Node), w.Stage)
		if w.Percent != nil {
			fmt.Fprintf(&b, " %d %%", *w.Percent)
		}
		if w.Message != "" {
			fmt.Fprintf(&b, ", %s", w.Message)
		}
	}
	return c.Status == "True", b.String()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// reached is how the host reaches the model.
type reached struct {
	URL     string // up to and with /v1
	Model   string // the name that clients ask for
	Forward string // the port-forward that URL needs, "" if none
}

// ask asks one question and prints the answer as it streams.
func (d *Demo) ask(ctx context.Context, out io.Writer) (reached, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	m, err := d.model(ctx)
	if err != nil {
		return reached{}, err
	}
	if len(m.Status.ServedNames) == 0 {
		return reached{}, fmt.Errorf("model %s is served under no name; its condition NamesAccepted says why", Model)
	}
	r, stop, err := d.reach(ctx)
	if err != nil {
		return r, err
	}
	defer stop()
	r.Model = m.Status.ServedNames[0]
	fmt.Fprint(out, "      ")
	a, err := ask.Client{HTTP: d.HTTP, Clock: d.Clock}.Stream(ctx, ask.Question{URL: r.URL, Model: r.Model, Prompt: Prompt, MaxTokens: 64}, out)
	fmt.Fprintln(out)
	if err != nil {
		return r, err
	}
	fmt.Fprintf(out, "      first token after %d ms, %d tokens, %.0f tokens/s, from worker %s\n",
		a.FirstToken.Milliseconds(), a.Tokens, a.TokensPerSecond(), orDash(a.Worker))
	return r, nil
}

// reach finds a URL of the namespace's router that works from this host: the Service's own address, or a
// port-forward, which lasts until stop is called.
func (d *Demo) reach(ctx context.Context) (r reached, stop func(), err error) {
	router := &v1alpha1.InferenceRouter{}
	if err := d.get(ctx, router, "inferencerouter", v1alpha1.DefaultName); err != nil {
		return r, nil, err
	}
	if router.Status.ClusterIP == "" {
		return r, nil, fmt.Errorf("router %s has no address yet", v1alpha1.DefaultName)
	}
	address := net.JoinHostPort(router.Status.ClusterIP, strconv.Itoa(int(router.Spec.Service.Port)))
	dialer := net.Dialer{Timeout: dialWithin}
	if c, err := dialer.DialContext(ctx, "tcp", address); err == nil {
		return reached{URL: "http://" + strings.TrimSuffix(address, ":80") + "/v1"}, func() {}, c.Close()
	}
	service := "service/" + v1alpha1.DefaultName + "-router"
	local, stop, err := d.forward(ctx, service, int(router.Spec.Service.Port))
	if err != nil {
		return r, nil, fmt.Errorf("reach the router: no answer from %s, and %w", address, err)
	}
	return reached{URL: "http://" + local + "/v1",
		Forward: fmt.Sprintf("kubectl -n %s port-forward %s %s:%d", Namespace, service, local[strings.LastIndex(local, ":")+1:], router.Spec.Service.Port)}, stop, nil
}

// forward starts a port-forward to a free local port and returns its address.
func (d *Demo) forward(ctx context.Context, service string, port int) (local string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	program := d.bin("kubectl")
	if kind() {
		program = "kubectl"
	}
	c := d.command(ctx, program, "-n", Namespace, "port-forward", service, fmt.Sprintf(":%d", port))
	stdout, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		cancel()
		return "", nil, fmt.Errorf("port-forward to %s: %w", service, err)
	}
	stop = func() {
		cancel()
		_ = c.Wait() // it was told to end
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	fields := strings.Fields(strings.TrimPrefix(line, "Forwarding from "))
	if err != nil || len(fields) == 0 {
		stop()
		return "", nil, fmt.Errorf("port-forward to %s ended before it listened", service)
	}
	return fields[0], stop, nil
}
