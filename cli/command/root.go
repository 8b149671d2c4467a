// Package command holds the commands of the kubectl plugin, one file each. A command reads what it needs, turns it into
// text by a pure function, and prints it. None of them writes to the cluster.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// Streams are where a command reads and writes. Results go to Out, progress and figures to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// errAnswered is returned by a command that has printed why it is not content.
var errAnswered = errors.New("see above")

// cluster is what the user's flags and kubeconfig point at.
type cluster struct {
	flags *genericclioptions.ConfigFlags
	clock clock.PassiveClock
}

// Root returns the plugin's command tree.
func Root(s Streams, version string) *cobra.Command {
	c := &cluster{flags: genericclioptions.NewConfigFlags(true), clock: clock.RealClock{}}
	root := &cobra.Command{
		Use:   "kubectl-ringfleet",
		Short: "Look after an LLM inference fleet",
		Long: "Look after an LLM inference fleet: ask its models, see what they are doing and why not, check a cluster " +
			"before installing, and plan the memory of a model before serving it.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl ringfleet"},
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.flags.AddFlags(root.PersistentFlags())
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.AddCommand(chatCommand(c, s), statusCommand(c, s), checkCommand(c, s), planCommand(s))
	return root
}

// clients are the connections of one run of a command.
type clients struct {
	config    *rest.Config
	kube      kubernetes.Interface
	fleet     rest.Interface
	namespace string
}

// connect reads the kubeconfig. It makes no call.
func (c *cluster) connect() (*clients, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	fleet, err := fleetClient(config)
	if err != nil {
		return nil, err
	}
	return &clients{config: config, kube: kube, fleet: fleet, namespace: namespace}, nil
}

func fleetClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	own := rest.CopyConfig(config)
	own.GroupVersion = &v1alpha1.GroupVersion
	own.APIPath = "/apis"
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own.ContentType = runtime.ContentTypeJSON
	return rest.RESTClientFor(own)
}

// list reads all objects of a resource in the namespace into out.
func (c *clients) list(ctx context.Context, resource string, out runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := c.fleet.Get().Namespace(c.namespace).Resource(resource).Do(ctx).Into(out); err != nil {
		return fmt.Errorf("list %s in namespace %s: %w", resource, c.namespace, err)
	}
	return nil
}

// completeModels offers the names of the namespace's models.
func completeModels(c *cluster) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		k, err := c.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var models v1alpha1.InferenceModelList
		if err := k.list(cmd.Context(), "inferencemodels", &models); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, m := range models.Items {
			names = append(names, m.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
