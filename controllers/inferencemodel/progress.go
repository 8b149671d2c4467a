package inferencemodel

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/conditions"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel/desired"
)

// progress is where a worker is that no request reaches yet, and the reason that speaks of it best.
type progress struct {
	stage   v1alpha1.WorkerStage
	reason  v1alpha1.Reason
	percent *int32
	message string
}

// weightsReasons are the reasons of WeightsCached that a worker may report.
var weightsReasons = []v1alpha1.Reason{
	v1alpha1.ReasonWeightsNotFound, v1alpha1.ReasonWeightsNotGGUF, v1alpha1.ReasonWeightsTruncated,
	v1alpha1.ReasonWeightsDigestMismatch, v1alpha1.ReasonWeightsUnsupported, v1alpha1.ReasonWeightsUnauthorized,
	v1alpha1.ReasonWeightsSourceForbidden, v1alpha1.ReasonWeightsSourceUnreachable, v1alpha1.ReasonWeightsSourceChanged,
	v1alpha1.ReasonWeightsNoSpace, v1alpha1.ReasonWeightsCacheUnwritable,
}

// blamesWeights reports whether why is a reason of WeightsCached=False.
func blamesWeights(why v1alpha1.Reason) bool {
	return why == v1alpha1.ReasonWeightsPullFailed || slices.Contains(weightsReasons, why)
}

// stuck reports whether why needs somebody to act: the manager can only wait.
func stuck(why v1alpha1.Reason) bool {
	switch why {
	case v1alpha1.ReasonUnschedulable, v1alpha1.ReasonImagePullFailed, v1alpha1.ReasonPodRejected, v1alpha1.ReasonWorkerFailed, v1alpha1.ReasonMemoryShort:
		return true
	}
	return blamesWeights(why)
}

// follow says where w is. Its pod is looked at from the outside in: phase, node, container, then the worker's own word.
func follow(w worker, weights v1alpha1.Weights, v View, now time.Time) progress {
	starting := func(stage v1alpha1.WorkerStage, message string) progress {
		return progress{stage: stage, reason: v1alpha1.ReasonWorkersStarting, message: message}
	}
	c, first := containerStatus(w.pod), blocking(w.pod)
	switch {
	case w.terminating:
		return progress{stage: v1alpha1.StageDraining, reason: v1alpha1.ReasonScalingDown,
			message: conditions.Count(w.inFlight, "request runs on it", "requests run on it")}
	case w.ended:
		return progress{stage: v1alpha1.StageFailed, reason: v1alpha1.ReasonPodRejected,
			message: "the pod ended: " + join(w.pod.Status.Reason, w.pod.Status.Message) + "; it is replaced with growing delays"}
	case w.node == "":
		return unplaced(w.pod, weights)
	case first != nil && first.State.Running != nil && w.reported:
		return reporting(w, v) // it fetches the weights
	case first != nil && first.State.Waiting != nil:
		return waiting(*first, w.pod, weights, now)
	case first != nil && first.State.Terminated != nil:
		return starting(v1alpha1.StageStarting, "container "+first.Name+" ended: "+ending(first.State.Terminated)+"; the kubelet starts it again")
	case c == nil:
		return starting(v1alpha1.StagePending, "the kubelet has not begun with it")
	case c.State.Waiting != nil:
		return waiting(*c, w.pod, weights, now)
	case c.State.Terminated != nil:
		return starting(v1alpha1.StageStarting, "its process ended: "+ending(c.State.Terminated)+"; the kubelet starts it again")
	case !w.reported:
		return starting(v1alpha1.StageStarting, strings.TrimSuffix("no report from it yet; "+unheard(w, v), "; "))
	}
	return reporting(w, v)
}

// unplaced says why a pod has no node.
func unplaced(pod *corev1.Pod, weights v1alpha1.Weights) progress {
	p := progress{stage: v1alpha1.StagePending, reason: v1alpha1.ReasonWorkersStarting, message: "no node chosen yet"}
	c := condition(pod, corev1.PodScheduled)
	if c == nil || c.Status == corev1.ConditionTrue || c.Message == "" {
		return p
	}
	p.message = "the scheduler says: " + c.Message
	claim, _ := desired.WeightsClaim(weights)
	switch {
	case claim != "" && strings.Contains(c.Message, "persistentvolumeclaim") && strings.Contains(c.Message, `"`+claim+`"`):
		p.reason = v1alpha1.ReasonWeightsPullFailed
	case c.Reason == corev1.PodReasonUnschedulable:
		p.reason = v1alpha1.ReasonUnschedulable
		p.message += "; free room, add a node, or ask for less in the pool's workerResources"
	}
	return p
}

// longWait is how long images and volumes may be on their way, from when the kubelet saw the pod, without a hint where to
// look: most volumes that can't be mounted are told of in events of the pod only.
const longWait = 60 * time.Second

// waiting says why a container does not run. The kubelet uses the same words for the container's image and for one that
// is a volume, so the message must tell which one it was.
func waiting(c corev1.ContainerStatus, pod *corev1.Pod, weights v1alpha1.Weights, now time.Time) progress {
	w := c.State.Waiting
	p := progress{stage: v1alpha1.StagePending, message: join(w.Reason, w.Message)}
	image := imageOf(pod, c.Name)
	ofWeights := weightsImageIn(w.Message, weights, image)
	switch w.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed":
		p.reason, p.message = v1alpha1.ReasonImagePullFailed,
			"image "+image+": "+p.message+"; correct engine.image, or the pool's imagePullSecrets"
		if ofWeights {
			p.reason, p.message = v1alpha1.ReasonWeightsPullFailed,
				"weights "+weights.URI+": "+join(w.Reason, w.Message)+"; correct spec.weights, or the pool's imagePullSecrets"
		}
	case "CreateContainerError", "CreateContainerConfigError", "RunContainerError":
		p.reason = v1alpha1.ReasonWorkerFailed
		if ofWeights || strings.Contains(w.Message, "ImageVolumeMountFailed") || strings.Contains(w.Message, ofWeightsMount) {
			p.reason, p.message = v1alpha1.ReasonWeightsPullFailed, "weights "+weights.URI+": "+p.message
		}
	case "CrashLoopBackOff":
		p.stage, p.reason = v1alpha1.StageFailed, v1alpha1.ReasonWorkerFailed
		whose := "its process"
		if c.Name != desired.Container {
			whose = "the process of container " + c.Name
		}
		p.message = fmt.Sprintf(whose+" ended %s, the last time: %s", conditions.Count(c.RestartCount+1, "time", "times"), ending(c.LastTerminationState.Terminated))
	default:
		p.reason, p.message = v1alpha1.ReasonWorkersStarting, "images and volumes are on their way to node "+pod.Spec.NodeName
		if since := pod.Status.StartTime; since != nil && now.Sub(since.Time) > longWait {
			p.message += "; see kubectl describe pod " + pod.Name + " if it stays"
		}
	}
	return p
}

// imageOf is the image that a container of pod should run.
func imageOf(pod *corev1.Pod, name string) string {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].Image
			}
		}
	}
	return ""
}

// ofWeightsMount is how the kubelet names what can't be mounted, such as a folder that a read-only volume lacks.
const ofWeightsMount = `volumeMount "` + desired.WeightsVolume + `"`

// weightsImageIn reports whether a kubelet's message speaks of the weights' image rather than of the worker's.
func weightsImageIn(message string, weights v1alpha1.Weights, image string) bool {
	ref := desired.WeightsImage(weights)
	return ref != "" && strings.Contains(message, ref) && (ref != image) &&
		(!strings.Contains(message, image) || strings.Contains(ref, image))
}

// reporting says what a worker that reports is at.
func reporting(w worker, v View) progress {
	r := w.report
	p := progress{stage: r.Stage, reason: v1alpha1.ReasonWorkersStarting, percent: r.Percent, message: r.Message}
	switch {
	case r.Age >= SilentAfter:
		p.stage, p.percent = v1alpha1.StageStarting, nil
		p.message = fmt.Sprintf("no report from it for %s, see whether node %s is Ready; %s", SilentAfter, w.node, unheard(w, v))
	case r.Stage == v1alpha1.StageFailed:
		p.reason = v1alpha1.ReasonWorkerFailed
		if why := v1alpha1.Reason(r.Reason); slices.Contains(weightsReasons, why) || why == v1alpha1.ReasonMemoryShort {
			p.reason = why
		}
	case r.Loaded && r.Stage != v1alpha1.StageDraining:
		p.stage, p.percent, p.message = v1alpha1.StageLoaded, nil, unheard(w, v)
	}
	if p.stage == "" {
		p.stage = v1alpha1.StageStarting
	}
	return p
}

// unheard says which routers have not taken w into their rings, and why not, as far as they say.
func unheard(w worker, v View) string {
	if len(v.heard()) == 0 {
		return "no router is there to take it into its ring"
	}
	var names, errs []string
	for _, r := range v.heard() {
		seen := r.Workers[w.uid]
		if seen.InRing && r.Answered {
			continue
		}
		names = append(names, r.Pod)
		if why := steady(r.Error + seen.LastError); why != "" && !slices.Contains(errs, why) {
			errs = append(errs, why)
		}
	}
	if len(names) == 0 {
		return "every router has it in its ring; the kubelet's readiness probe has not seen it ready"
	}
	slices.Sort(names)
	return join("not in the ring of "+strings.Join(names, ", "), strings.Join(errs, "; "))
}

// ownEnd is the near end of a connection in an error of Go's net package, as in "read tcp 10.0.0.1:40312->10.0.0.2:9443".
var ownEnd = regexp.MustCompile(`[^\s"]+:\d+->`)

// steady is an error's text without what differs from try to try, so that a lasting error is written once.
func steady(text string) string { return ownEnd.ReplaceAllString(text, "") }

// ending says how a process ended, with the end of its log where the kubelet kept it.
func ending(t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return "no record of it"
	}
	text := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Signal != 0 {
		text = fmt.Sprintf("signal %d", t.Signal)
	}
	if t.Reason != "" {
		text += " (" + t.Reason + ")"
	}
	lines := strings.Split(strings.TrimSpace(t.Message), "\n")
	return join(text, conditions.Shorten(strings.TrimSpace(lines[len(lines)-1]), 400))
}

// join puts what is not empty of a and b into one phrase.
func join(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + ": " + b
}
