package manager

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/controllers/fleetclient"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel"
	"github.com/ringfleet/ringfleet/controllers/inferencerouter/desired"
)

// fleetView lets the controller of models look at a namespace through the fleet client.
type fleetView struct{ fleet *fleetclient.Client }

// Look asks the routers, and workers that no router has a report of.
func (f fleetView) Look(ctx context.Context, namespace string) (inferencemodel.View, error) {
	said, err := f.fleet.Look(ctx, namespace)
	if err != nil {
		return inferencemodel.View{}, err
	}
	v := inferencemodel.View{Workers: map[types.UID]inferencemodel.WorkerView{}}
	for uid, report := range said.Workers {
		v.Workers[types.UID(uid)] = ofReport(report, 0)
	}
	for _, r := range said.Routers {
		v.Routers = append(v.Routers, ofRouter(r))
	}
	return v, nil
}

func ofRouter(r fleetclient.Router) inferencemodel.RouterView {
	v := inferencemodel.RouterView{
		Pod: r.Pod, Answered: r.Status != nil, Silence: r.Silence, Error: r.Error,
		Workers: map[types.UID]inferencemodel.WorkerView{},
	}
	for _, m := range r.Status.GetModels() {
		for _, w := range m.GetWorkers() {
			v.Workers[types.UID(w.GetPodUid())] = ofWorker(w)
		}
	}
	return v
}

func ofWorker(w *routerv1.WorkerStatus) inferencemodel.WorkerView {
	v := inferencemodel.WorkerView{}
	if report := w.GetReport(); report != nil {
		v = ofReport(report, time.Duration(w.GetReportAgeMilliseconds())*time.Millisecond)
	}
	v.InRing, v.InFlight, v.LastError = w.GetInRing(), int(w.GetInFlight()), w.GetLastError()
	return v
}

// stages of the contract with workers in the words of the API.
var stages = map[workerv1.Stage]v1alpha1.WorkerStage{
	workerv1.Stage_STAGE_FETCHING: v1alpha1.StageFetching,
	workerv1.Stage_STAGE_LOADING:  v1alpha1.StageLoading,
	workerv1.Stage_STAGE_LOADED:   v1alpha1.StageLoaded,
	workerv1.Stage_STAGE_FAILED:   v1alpha1.StageFailed,
	workerv1.Stage_STAGE_DRAINING: v1alpha1.StageDraining,
}

func ofReport(r *workerv1.Report, age time.Duration) inferencemodel.WorkerView {
	v := inferencemodel.WorkerView{
		Instance: r.GetInstanceId(), Loaded: r.GetModelLoaded(), Stage: stages[r.GetStage()],
		Reason: r.GetReason(), Message: r.GetMessage(), Shape: r.GetShape(),
		Running: int(r.GetLoad().GetRunning()) + int(r.GetLoad().GetWaiting()), Age: age,
	}
	if r.ProgressPercent != nil {
		v.Percent = ptr.To(int32(min(r.GetProgressPercent(), 100)))
	}
	return v
}

// findPods names the routers and workers of a namespace that can be asked, from the cache of pods.
func findPods(reader client.Reader) fleetclient.Find {
	return func(ctx context.Context, namespace string) (fleetclient.Pods, error) {
		list, found := &corev1.PodList{}, fleetclient.Pods{}
		if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return found, fmt.Errorf("list pods: %w", err)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.DeletionTimestamp != nil || pod.Status.PodIP == "" {
				continue
			}
			whom := fleetclient.Pod{
				Name: pod.Name, UID: string(pod.UID),
				Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(v1alpha1.PortGRPCNumber)),
			}
			switch component := pod.Labels[v1alpha1.LabelComponent]; {
			case component == desired.Component && ready(pod):
				found.Routers = append(found.Routers, whom)
			case component != desired.Component && running(pod):
				found.Workers = append(found.Workers, whom)
			}
		}
		return found, nil
	}
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// running reports whether all containers of pod run.
func running(pod *corev1.Pod) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running == nil {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0
}
