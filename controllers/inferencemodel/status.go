package inferencemodel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/conditions"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel/desired"
	"github.com/ringfleet/ringfleet/controllers/names"
)

// Bounds of what a status tells of single workers.
const (
	maxWorkers = 16
	maxMessage = 1024
)

// summary is what the conditions are judged from: the observation, counted.
type summary struct {
	*scope
	// loaded and serving count live workers; current those of the wanted revision, currentServing those of them that
	// serve, outdated the others. draining are being deleted.
	live, loaded, serving, current, currentServing, outdated, draining int
	// ways are the workers that no request reaches, the most telling first.
	ways []way
}

type way struct {
	w worker
	p progress
}

// status says what s is. It is the only place that does, and looks at nothing but s and the error that ended the steps.
// When the workers could not be observed, what was said before stands, beside that error.
func status(s *scope, err error) v1alpha1.InferenceModelStatus {
	st := *s.model.Status.DeepCopy()
	if !s.counted && err != nil {
		conditions.Set(&st.Conditions, s.model.Generation, s.now, conditions.True(v1alpha1.Progressing, v1alpha1.ReasonReconcileFailed, err.Error()))
		return st
	}
	c := count(s)
	st.ObservedGeneration = s.model.Generation
	st.Replicas, st.LoadedReplicas, st.InRingReplicas = int32p(c.live), int32p(c.loaded), int32p(c.serving)
	st.InRing = fmt.Sprintf("%d/%d", c.serving, s.want.replicas)
	st.Selector = labels.SelectorFromSet(desired.Selector(s.model)).String()
	if s.want.revision != "" {
		st.Revision = s.want.revision
	}
	st.ServedNames, st.EngineArgs = s.names, desired.EngineArgs(s.model)
	st.URL = ""
	if s.router != nil {
		st.URL = s.router.Status.URL
	}
	st.Workers = c.workers()
	routers, names, weights := c.routerReady(), c.namesAccepted(), c.weightsCached()
	var memory conditions.Finding
	st.Memory, memory = c.memory(s.model.Status)
	ready, progressing := c.ready(err, routers), c.progressing(err)
	conditions.Set(&st.Conditions, s.model.Generation, s.now, ready, progressing, weights, memory, routers, names)
	return st
}

func int32p(n int) *int32 { return new(int32(n)) }

// count counts the workers of s and follows those that do not serve.
func count(s *scope) summary {
	c := summary{scope: s}
	for _, w := range s.workers {
		serves := w.serves(s.view)
		if w.terminating {
			c.draining++
		}
		if w.live() {
			c.live++
			c.loaded += btoi(w.loaded())
			c.serving += btoi(serves)
			if s.want.revision == "" || w.revision == s.want.revision {
				c.current++
				c.currentServing += btoi(serves)
			} else {
				c.outdated++
			}
		}
		if !serves {
			c.ways = append(c.ways, way{w, follow(w, s.model.Spec.Weights, s.view, s.now)})
		}
	}
	slices.SortFunc(c.ways, func(a, b way) int {
		return cmp.Or(cmp.Compare(s.rank(a), s.rank(b)), cmp.Compare(a.w.name, b.w.name))
	})
	return c
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// rank orders ways by how much they tell: what is broken, then what is under way, older revisions behind, and last
// what goes.
func (s *scope) rank(y way) int {
	r := 3
	switch why := y.p.reason; {
	case blamesWeights(why):
		r = 0
	case why == v1alpha1.ReasonImagePullFailed, why == v1alpha1.ReasonPodRejected, why == v1alpha1.ReasonWorkerFailed, why == v1alpha1.ReasonMemoryShort:
		r = 1
	case why == v1alpha1.ReasonUnschedulable:
		r = 2
	}
	if s.want.revision != "" && y.w.revision != s.want.revision {
		r += 4
	}
	if y.w.terminating {
		r += 8
	}
	return r
}

// workers lists those that do not serve, by name; when there are too many, the less telling ones are left out.
func (c summary) workers() []v1alpha1.WorkerProgress {
	var list []v1alpha1.WorkerProgress
	for _, y := range c.ways[:min(len(c.ways), maxWorkers)] {
		list = append(list, v1alpha1.WorkerProgress{
			Name: y.w.name, Node: y.w.node, Stage: y.p.stage, Percent: y.p.percent,
			Message: conditions.Shorten(y.p.message, maxMessage),
		})
	}
	slices.SortFunc(list, func(a, b v1alpha1.WorkerProgress) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// first is the most telling worker that should serve and does not.
func (c summary) first() (way, bool) {
	for _, y := range c.ways {
		if !y.w.terminating && (c.want.revision == "" || y.w.revision == c.want.revision) {
			return y, true
		}
	}
	return way{}, false
}

// tell describes one worker in a phrase: which, where, at what.
func (y way) tell() string {
	text := "pod " + y.w.name
	if y.w.node != "" {
		text += " on node " + y.w.node
	}
	text += " is " + string(y.p.stage)
	if y.p.percent != nil {
		text += fmt.Sprintf(" (%d %%)", *y.p.percent)
	}
	return join(text, y.p.message)
}

// inRing counts the workers in the ring in a phrase.
func (c summary) inRing() string {
	return fmt.Sprintf("%d of %s in the ring", c.currentServing, conditions.Count(c.want.replicas, "worker", "workers"))
}

// left counts the workers that a deletion waits for, in a phrase.
func (c summary) left() string {
	return conditions.Count(c.live+c.draining, "worker is left", "workers are left")
}

// ready judges Ready, and says whether a bound stands between spec.replicas and the workers, and whether a setting does
// nothing. routers is what was found of RouterReady.
func (c summary) ready(err error, routers conditions.Finding) conditions.Finding {
	f := c.readiness(err, routers)
	for _, note := range []string{c.want.clamped, c.unsplit()} {
		if note != "" && c.model.DeletionTimestamp == nil {
			f.Message += "; " + note
		}
	}
	return f
}

// unsplit says where spec.parallelism does nothing: llama.cpp shares a model out among GPUs only.
func (c summary) unsplit() string {
	p := c.model.Spec.Parallelism
	if p == nil || c.pool == nil || c.model.Spec.Engine.Kind != v1alpha1.EngineLlamaCpp || orOne(p.Tensor)*orOne(p.Pipeline) == 1 ||
		c.pool.Spec.Accelerator.Kind == v1alpha1.AcceleratorNvidiaGPU {
		return ""
	}
	return fmt.Sprintf("spec.parallelism does nothing, because WorkerPool %s has no GPUs: remove it, or name a pool with accelerator.kind NvidiaGPU",
		names.Pool(c.model))
}

func (c summary) readiness(err error, routers conditions.Finding) conditions.Finding {
	no := func(why v1alpha1.Reason, message string) conditions.Finding {
		return conditions.False(v1alpha1.Ready, why, message)
	}
	whole := c.currentServing >= c.want.replicas && c.outdated == 0
	y, waits := c.first()
	switch {
	case c.model.DeletionTimestamp != nil:
		return no(v1alpha1.ReasonDeleting, "the model is being deleted; "+c.left())
	case err != nil && !whole:
		return no(v1alpha1.ReasonReconcileFailed, err.Error())
	case c.pool == nil:
		return no(v1alpha1.ReasonPoolNotFound, c.noPool())
	case len(c.names) == 0:
		return no(v1alpha1.ReasonNameTaken, c.namesAccepted().Message)
	case c.want.replicas == 0 && c.current+c.outdated == 0:
		return conditions.True(v1alpha1.Ready, v1alpha1.ReasonScaledToZero, "no worker is wanted: spec.replicas is 0")
	case c.rejected != nil:
		return no(v1alpha1.ReasonPodRejected, c.inRing()+": "+c.rejected.Error())
	case waits && c.currentServing < c.want.replicas:
		return no(blame(y.p.reason), c.inRing()+": "+y.tell())
	case c.currentServing < c.want.replicas:
		return no(v1alpha1.ReasonWorkersStarting, c.inRing()+": the rest are being created")
	case c.outdated > 0:
		return no(v1alpha1.ReasonRollingOut, fmt.Sprintf("%s, and %d of an older revision that must go", c.inRing(), c.outdated))
	case !routers.Holds() && len(c.view.heard()) == 0:
		return no(v1alpha1.ReasonRouterNotReady, routers.Message)
	}
	return conditions.True(v1alpha1.Ready, v1alpha1.ReasonServing, c.inRing())
}

// blame is the reason of Ready for a worker's reason: what the weights are accused of stands in WeightsCached.
func blame(why v1alpha1.Reason) v1alpha1.Reason {
	if blamesWeights(why) {
		return v1alpha1.ReasonWeightsNotUsable
	}
	return why
}

func (c summary) noPool() string {
	return fmt.Sprintf("WorkerPool %s does not exist in namespace %s: create it, or name another in spec.poolRef",
		names.Pool(c.model), c.model.Namespace)
}

// progressing judges Progressing.
func (c summary) progressing(err error) conditions.Finding {
	find := func(status metav1.ConditionStatus, why v1alpha1.Reason, message string) conditions.Finding {
		return conditions.Finding{Type: v1alpha1.Progressing, Status: status, Reason: why, Message: message}
	}
	y, waits := c.first()
	switch {
	case c.model.DeletionTimestamp != nil:
		return find(metav1.ConditionTrue, v1alpha1.ReasonDeleting, c.left())
	case err != nil:
		return find(metav1.ConditionTrue, v1alpha1.ReasonReconcileFailed, err.Error())
	case c.pool == nil:
		return find(metav1.ConditionFalse, v1alpha1.ReasonPoolNotFound, c.noPool())
	case c.rejected != nil:
		return find(metav1.ConditionFalse, v1alpha1.ReasonPodRejected, c.rejected.Error())
	case waits && stuck(y.p.reason):
		return find(metav1.ConditionFalse, blame(y.p.reason), y.tell())
	case c.outdated > 0:
		return find(metav1.ConditionTrue, v1alpha1.ReasonRollingOut, fmt.Sprintf("%s revision %s, %d an older one",
			conditions.Count(c.current, "worker has", "workers have"), c.want.revision, c.outdated))
	case c.currentServing < c.want.replicas:
		return find(metav1.ConditionTrue, v1alpha1.ReasonWorkersStarting, c.inRing())
	case c.draining > 0:
		return find(metav1.ConditionTrue, v1alpha1.ReasonScalingDown, conditions.Count(c.draining, "worker finishes its requests", "workers finish their requests"))
	}
	return find(metav1.ConditionFalse, v1alpha1.ReasonStable, "nothing is being changed")
}

// weightsCached judges WeightsCached.
func (c summary) weightsCached() conditions.Finding {
	uri := c.model.Spec.Weights.URI
	if y, waits := c.first(); waits && blamesWeights(y.p.reason) {
		return conditions.False(v1alpha1.WeightsCached, y.p.reason, y.tell())
	}
	loaded := c.holding()
	all := max(c.want.replicas, c.current)
	message := fmt.Sprintf("%d of %s loaded %s", loaded, conditions.Count(all, "worker has", "workers have"), uri)
	if loaded > 0 && loaded >= all {
		return conditions.True(v1alpha1.WeightsCached, v1alpha1.ReasonWeightsLoaded, message)
	}
	return conditions.Unknown(v1alpha1.WeightsCached, v1alpha1.ReasonWeightsPending, message)
}

// holding counts the workers of the wanted revision that hold the model.
func (c summary) holding() int {
	n := 0
	for _, w := range c.scope.workers {
		n += btoi(w.loaded() && (c.want.revision == "" || w.revision == c.want.revision))
	}
	return n
}

// routerReady judges RouterReady.
func (c summary) routerReady() conditions.Finding {
	silent := c.view.silent()
	switch n := len(c.view.Routers); {
	case n == 0 && c.router == nil:
		return conditions.False(v1alpha1.RouterReady, v1alpha1.ReasonNoRouterReady,
			"namespace "+c.model.Namespace+" has no InferenceRouter yet")
	case n == 0:
		return conditions.False(v1alpha1.RouterReady, v1alpha1.ReasonNoRouterReady, fmt.Sprintf(
			"no router pod is Ready: see kubectl -n %s describe inferencerouter %s", c.model.Namespace, c.router.Name))
	case len(silent) > 0:
		return conditions.False(v1alpha1.RouterReady, v1alpha1.ReasonRouterSilent, fmt.Sprintf(
			"%d of %s not answered for %s; left out until then: %s; see their logs",
			len(silent), conditions.Count(n, "router has", "routers have"), SilentAfter, strings.Join(silent, ", ")))
	default:
		return conditions.True(v1alpha1.RouterReady, v1alpha1.ReasonRoutersReady, conditions.Count(n, "router is Ready", "routers are Ready"))
	}
}

// namesAccepted judges NamesAccepted.
func (c summary) namesAccepted() conditions.Finding {
	if len(c.lost) == 0 {
		return conditions.True(v1alpha1.NamesAccepted, v1alpha1.ReasonNamesFree, "served as "+strings.Join(c.names, ", "))
	}
	var which []string
	for _, t := range c.lost {
		which = append(which, fmt.Sprintf("%s belongs to InferenceModel %s", t.name, t.by))
	}
	return conditions.False(v1alpha1.NamesAccepted, v1alpha1.ReasonNameTaken,
		strings.Join(which, ", ")+", which is older: choose another name in spec.modelName, spec.aliases or spec.adapters")
}
