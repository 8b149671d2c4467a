package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	authv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

func checkCommand(c *cluster, s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Say whether this cluster can run a fleet, and what is missing",
		Long: "Say whether this cluster can run a fleet: its version, image volumes, room on its nodes, the API and the " +
			"manager, and what you may do in the namespace. Ends with exit code 1 when something must be mended first.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := c.connect()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			seen, err := look(ctx, k)
			if err != nil {
				return err
			}
			return printFindings(s.Out, judge(seen))
		},
	}
}

// seen is what check looks at.
type seen struct {
	namespace     string
	serverVersion string
	nodes         []corev1.Node
	nodesHidden   bool // the user may not list nodes
	apiInstalled  bool
	managers      int // Ready manager pods; -1 when the user may not list them
	mayCreate     bool
}

// managerSelector finds manager pods in any namespace, whatever the release is called.
const managerSelector = "app.kubernetes.io/name=ringfleet,app.kubernetes.io/component=manager"

func look(ctx context.Context, k *clients) (seen, error) {
	s := seen{namespace: k.namespace}
	info, err := k.kube.Discovery().ServerVersion()
	if err != nil {
		return s, fmt.Errorf("reach the API server %s: %w", k.config.Host, err)
	}
	s.serverVersion = info.GitVersion
	nodes, err := k.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		s.nodesHidden = true
	case err != nil:
		return s, fmt.Errorf("list nodes: %w", err)
	default:
		s.nodes = nodes.Items
	}
	_, err = k.kube.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return s, fmt.Errorf("look for the API %s: %w", v1alpha1.GroupVersion, err)
	}
	s.apiInstalled = err == nil
	pods, err := k.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: managerSelector})
	switch {
	case apierrors.IsForbidden(err):
		s.managers = -1
	case err != nil:
		return s, fmt.Errorf("list manager pods: %w", err)
	default:
		for _, p := range pods.Items {
			if readyPod([]corev1.Pod{p}) != "" {
				s.managers++
			}
		}
	}
	review, err := k.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authv1.SelfSubjectAccessReview{
		Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authv1.ResourceAttributes{
			Namespace: k.namespace, Verb: "create", Group: v1alpha1.GroupVersion.Group, Resource: "inferencemodels",
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return s, fmt.Errorf("ask what you may do in namespace %s: %w", k.namespace, err)
	}
	s.mayCreate = review.Status.Allowed
	return s, nil
}

// verdict is how bad a finding is.
type verdict string

const (
	ok   verdict = "ok  "
	note verdict = "note"
	fail verdict = "FAIL"
)

type finding struct {
	verdict verdict
	text    string
}

// What one worker of the default pool asks of a node.
var (
	leastCPU    = resource.MustParse("500m")
	leastMemory = resource.MustParse("512Mi")
)

// judge turns what was seen into findings, from the cluster towards the user.
func judge(s seen) []finding {
	return []finding{judgeVersion(s), judgeNodes(s), judgeAPI(s), judgeManager(s), judgeRights(s)}
}

func judgeVersion(s seen) finding {
	v, err := version.ParseSemantic(s.serverVersion)
	switch {
	case err != nil:
		return finding{note, fmt.Sprintf("Kubernetes %q has a version that can't be read; 1.35 or later is needed", s.serverVersion)}
	case version.MajorMinor(v.Major(), v.Minor()).LessThan(version.MajorMinor(1, 35)): // v1.35.0-eks-… is no pre-release
		return finding{fail, fmt.Sprintf("Kubernetes %s is older than 1.35: weights by oci:// need image volumes, which are on by default from 1.35. Upgrade", s.serverVersion)}
	}
	return finding{ok, fmt.Sprintf("Kubernetes %s has image volumes", s.serverVersion)}
}

func judgeNodes(s seen) finding {
	if s.nodesHidden {
		return finding{note, "nodes can't be seen with your rights: whether a worker finds room is not checked"}
	}
	fits := 0
	for _, n := range s.nodes {
		a := n.Status.Allocatable
		if nodeReady(n) && !n.Spec.Unschedulable && a.Cpu().Cmp(leastCPU) >= 0 && a.Memory().Cmp(leastMemory) >= 0 {
			fits++
		}
	}
	if fits == 0 {
		return finding{fail, fmt.Sprintf("none of %s is Ready, schedulable and has %s CPU and %s of memory for a worker of the default pool. Add a node, or make a WorkerPool that asks for less",
			count(len(s.nodes), "node", "nodes"), leastCPU.String(), leastMemory.String())}
	}
	return finding{ok, fmt.Sprintf("%d of %s room for a worker of the default pool (%s CPU, %s)", fits, count(len(s.nodes), "node has", "nodes have"), leastCPU.String(), leastMemory.String())}
}

func nodeReady(n corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func judgeAPI(s seen) finding {
	if !s.apiInstalled {
		return finding{fail, fmt.Sprintf("the API %s is not installed. Run: helm install ringfleet charts/ringfleet -n ringfleet-system --create-namespace", v1alpha1.GroupVersion)}
	}
	return finding{ok, fmt.Sprintf("the API %s is installed", v1alpha1.GroupVersion)}
}

func judgeManager(s seen) finding {
	switch {
	case s.managers < 0:
		return finding{note, "pods of other namespaces can't be seen with your rights: whether the manager runs is not checked"}
	case s.managers == 0:
		return finding{fail, "no manager pod is Ready. See: kubectl get pods -A -l " + managerSelector}
	}
	return finding{ok, count(s.managers, "manager pod is Ready", "manager pods are Ready")}
}

func judgeRights(s seen) finding {
	if !s.mayCreate {
		return finding{fail, fmt.Sprintf("you may not create InferenceModels in namespace %s: ask for a RoleBinding to the ClusterRole edit there", s.namespace)}
	}
	return finding{ok, fmt.Sprintf("you may create InferenceModels in namespace %s", s.namespace)}
}

func printFindings(w io.Writer, findings []finding) error {
	failed := 0
	for _, f := range findings {
		fmt.Fprintf(w, "%s  %s\n", f.verdict, f.text)
		if f.verdict == fail {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed: %w", failed, len(findings), errAnswered)
	}
	return nil
}
