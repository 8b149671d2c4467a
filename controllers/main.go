// The manager turns InferenceModels, WorkerPools and InferenceRouters into workers and routers.
package main

import (
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/ringfleet/ringfleet/controllers/manager"
)

// version is set when a release is linked.
var version = "dev"

func main() {
	o := manager.Options{Version: version}
	o.Bind(flag.CommandLine)
	flag.Parse()
	if err := manager.Run(ctrl.SetupSignalHandler(), o); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}
