package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

func statusCommand(c *cluster, s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "status [MODEL]",
		Short: "Show models, their pool, routers and workers, and why not",
		Long: "Show each InferenceModel of the namespace, or one: is it Ready, under which names it is served, by which " +
			"routers and workers, and what stands in the way.",
		Example:           "  kubectl ringfleet status\n  kubectl ringfleet status smollm2 -n models",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeModels(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := c.connect()
			if err != nil {
				return err
			}
			f, err := observe(cmd.Context(), k)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if f.models, err = pick(f.models, args[0], k.namespace); err != nil {
					return err
				}
			}
			printFleet(s.Out, f, c.clock.Now())
			return nil
		},
	}
}

// fleet is what a namespace holds.
type fleet struct {
	namespace string
	models    []v1alpha1.InferenceModel
	pools     []v1alpha1.WorkerPool
	routers   []v1alpha1.InferenceRouter
	workers   []corev1.Pod
}

func observe(ctx context.Context, k *clients) (fleet, error) {
	var models v1alpha1.InferenceModelList
	var pools v1alpha1.WorkerPoolList
	var routers v1alpha1.InferenceRouterList
	if err := k.list(ctx, "inferencemodels", &models); err != nil {
		return fleet{}, err
	}
	if err := k.list(ctx, "workerpools", &pools); err != nil {
		return fleet{}, err
	}
	if err := k.list(ctx, "inferencerouters", &routers); err != nil {
		return fleet{}, err
	}
	pods, err := k.kube.CoreV1().Pods(k.namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelModelUID})
	if err != nil {
		return fleet{}, fmt.Errorf("list pods in namespace %s: %w", k.namespace, err)
	}
	return fleet{namespace: k.namespace, models: models.Items, pools: pools.Items, routers: routers.Items, workers: pods.Items}, nil
}

// pick returns the model with the given object name or served name.
func pick(models []v1alpha1.InferenceModel, name, namespace string) ([]v1alpha1.InferenceModel, error) {
	var names []string
	for _, m := range models {
		if m.Name == name || slices.Contains(m.Status.ServedNames, name) {
			return []v1alpha1.InferenceModel{m}, nil
		}
		names = append(names, m.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no InferenceModel in namespace %s: apply one, or name another namespace by -n", namespace)
	}
	return nil, fmt.Errorf("no InferenceModel %s in namespace %s: there are %s", name, namespace, strings.Join(names, ", "))
}

// printFleet writes one paragraph for each model.
func printFleet(w io.Writer, f fleet, now time.Time) {
	if len(f.models) == 0 {
		fmt.Fprintf(w, "No InferenceModel in namespace %s.\n", f.namespace)
	}
	for i := range f.models {
		if i > 0 {
			fmt.Fprintln(w)
		}
		printModel(w, f, &f.models[i], now)
	}
}

func printModel(w io.Writer, f fleet, m *v1alpha1.InferenceModel, now time.Time) {
	ready, why := condition(m.Status.Conditions, v1alpha1.Ready)
	fmt.Fprintf(w, "model %s   %s   %s in the ring\n", m.Name, ready, orDash(m.Status.InRing))
	if why != "" {
		fmt.Fprintf(w, "  why     %s\n", why)
	}
	for _, t := range []v1alpha1.ConditionType{v1alpha1.WeightsCached, v1alpha1.RouterReady, v1alpha1.NamesAccepted, v1alpha1.Progressing} {
		if state, message := condition(m.Status.Conditions, t); worthSaying(t, state) && message != "" && message != why {
			fmt.Fprintf(w, "          %s: %s\n", state, message)
		}
	}
	fmt.Fprintf(w, "  serves  %s\n  URL     %s\n", orDash(strings.Join(m.Status.ServedNames, ", ")), orDash(m.Status.URL))
	for _, r := range f.routers {
		state, message := condition(r.Status.Conditions, v1alpha1.Ready)
		fmt.Fprintf(w, "  router  %s   %s   %s Ready%s\n", r.Name, state, orDash(r.Status.Ready), after(message, state))
	}
	printPool(w, f, m.Spec.PoolRef.Name)
	for i := range f.workers {
		if p := &f.workers[i]; p.Labels[v1alpha1.LabelModelUID] == string(m.UID) {
			printWorker(w, m, p, now)
		}
	}
}

func printPool(w io.Writer, f fleet, name string) {
	for _, p := range f.pools {
		if p.Name == name {
			state, message := condition(p.Status.Conditions, v1alpha1.Ready)
			fmt.Fprintf(w, "  pool    %s   %s   %s%s\n", p.Name, state, p.Spec.Accelerator.Kind, after(message, state))
			return
		}
	}
	fmt.Fprintf(w, "  pool    %s   does not exist\n", name)
}

func printWorker(w io.Writer, m *v1alpha1.InferenceModel, p *corev1.Pod, now time.Time) {
	stage, message := "InRing", ""
	for _, on := range m.Status.Workers {
		if on.Name != p.Name {
			continue
		}
		stage, message = string(on.Stage), on.Message
		if on.Percent != nil {
			stage += fmt.Sprintf(" %d %%", *on.Percent)
		}
	}
	if p.DeletionTimestamp != nil {
		stage = "Draining"
	} else if stage == "InRing" && !inRing(p) {
		stage = "Starting"
	}
	restarts := int32(0)
	for _, c := range p.Status.ContainerStatuses {
		restarts += c.RestartCount
	}
	fmt.Fprintf(w, "  worker  %s   %s   node %s   restarts %d   age %s\n", p.Name, stage, orDash(p.Spec.NodeName), restarts,
		duration.HumanDuration(now.Sub(p.CreationTimestamp.Time)))
	if message != "" {
		fmt.Fprintf(w, "          %s\n", message)
	}
}

func inRing(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.GateInRing {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// condition returns "Ready (Serving)", "not Ready (Unschedulable)" and so on, and the message.
func condition(conditions []metav1.Condition, t v1alpha1.ConditionType) (state, message string) {
	for _, c := range conditions {
		if c.Type != string(t) {
			continue
		}
		switch c.Status {
		case metav1.ConditionTrue:
			return fmt.Sprintf("%s (%s)", t, c.Reason), c.Message
		case metav1.ConditionFalse:
			return fmt.Sprintf("not %s (%s)", t, c.Reason), c.Message
		default:
			return fmt.Sprintf("%s unknown (%s)", t, c.Reason), c.Message
		}
	}
	return fmt.Sprintf("%s unknown (no manager has looked at it: see kubectl ringfleet check)", t), ""
}

// worthSaying is true for a condition that is not as people want it: Progressing should be false, the others true.
func worthSaying(t v1alpha1.ConditionType, state string) bool {
	return (t == v1alpha1.Progressing) == !strings.HasPrefix(state, "not ")
}

func after(message, state string) string {
	if message == "" || strings.HasPrefix(state, string(v1alpha1.Ready)+" (") {
		return ""
	}
	return "   " + message
}

// count is n and the word for it: one when n is 1, else many.
func count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
