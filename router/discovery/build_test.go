package discovery

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// objects is a cluster's content.
type objects struct {
	models    []*v1alpha1.InferenceModel
	endpoints []*discoveryv1.EndpointSlice
	router    *v1alpha1.InferenceRouter
}

// model has these names by its spec and by its status.
func model(uid, name string, age time.Duration, served ...string) *v1alpha1.InferenceModel {
	return &v1alpha1.InferenceModel{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "InferenceModel"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(created.Add(-age)),
		},
		Spec:   v1alpha1.InferenceModelSpec{Aliases: served},
		Status: v1alpha1.InferenceModelStatus{ServedNames: served},
	}
}

func slice(name, modelUID string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: map[string]string{v1alpha1.LabelModelUID: modelUID},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)},
			{Name: ptr.To("grpc"), Port: ptr.To[int32](9443), Protocol: ptr.To(corev1.ProtocolTCP)},
		},
		Endpoints: endpoints,
	}
}

func endpoint(pod, uid, ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{ip},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: pod, UID: types.UID(uid)},
	}
}

func going(e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.Conditions.Ready, e.Conditions.Terminating = ptr.To(false), ptr.To(true)
	return e
}

func adapted(o *objects, names ...string) {
	for _, name := range names {
		o.models[0].Spec.Adapters = append(o.models[0].Spec.Adapters, v1alpha1.Adapter{Name: name})
	}
}

func serve(o *objects, name string) {
	o.models[0].Status.ServedNames = append(o.models[0].Status.ServedNames, name)
}

// base is one model with two workers.
func base() *objects {
	m := model("uid-1", "smollm2", 0, "HuggingFaceTB/SmolLM2", "small")
	m.Spec.ModelName = "HuggingFaceTB/SmolLM2"
	return &objects{
		models:    []*v1alpha1.InferenceModel{m},
		endpoints: []*discoveryv1.EndpointSlice{slice("s1", "uid-1", endpoint("w-1", "p-1", "10.0.0.1"), endpoint("w-0", "p-0", "10.0.0.2"))},
	}
}

// baseState is what base means.
func baseState() State {
	return State{Synced: true, Settings: DefaultSettings(), Models: []Model{{
		UID: "uid-1", Object: "smollm2", Name: "HuggingFaceTB/SmolLM2",
		ServedNames: []string{"HuggingFaceTB/SmolLM2", "small"}, Created: created,
		Candidates: []Candidate{{"w-0", "p-0", "10.0.0.2:9443", false}, {"w-1", "p-1", "10.0.0.1:9443", false}},
	}}}
}

var means = map[string]struct {
	change func(*objects)
	want   func(*State)
}{
	"a model, its served names and its pods": {},
	"a model without a name of its own has the object's": {
		func(o *objects) { o.models[0].Spec.ModelName = "" },
		func(s *State) { s.Models[0].Name = "smollm2" },
	},
	"a name that the manager has not accepted is not served": {
		func(o *objects) { o.models[0].Status.ServedNames = nil },
		func(s *State) { s.Models[0].ServedNames = nil },
	},
	"the adapters that the manager has accepted are served, each as one": {
		func(o *objects) { adapted(o, "org/tuned", "refused"); serve(o, "org/tuned") },
		func(s *State) {
			s.Models[0].ServedNames = append(s.Models[0].ServedNames, "org/tuned")
			s.Models[0].Adapters = []string{"org/tuned"}
		},
	},
	"the name of an adapter that the spec has lost is not the model's": {
		func(o *objects) { adapted(o, "stays"); serve(o, "gone"); serve(o, "stays") },
		func(s *State) {
			s.Models[0].ServedNames = append(s.Models[0].ServedNames, "stays")
			s.Models[0].Adapters = []string{"stays"}
		},
	},
	"nor is an alias that the spec has lost": {
		func(o *objects) { o.models[0].Spec.Aliases = nil },
		func(s *State) { s.Models[0].ServedNames = s.Models[0].ServedNames[:1] },
	},
	"an alias that becomes an adapter is one at once": {
		func(o *objects) { o.models[0].Spec.Aliases = nil; adapted(o, "small") },
		func(s *State) { s.Models[0].Adapters = []string{"small"} },
	},
	"an adapter that becomes an alias is the model at once": {
		func(o *objects) {
			o.models[0].Spec.Aliases = append(o.models[0].Spec.Aliases, "tuned")
			serve(o, "tuned")
		},
		func(s *State) { s.Models[0].ServedNames = append(s.Models[0].ServedNames, "tuned") },
	},
	"a name that an older model's spec has lost is free for the next": {
		func(o *objects) {
			o.models[0].Spec.Aliases = nil
			o.models = append(o.models, model("uid-2", "other", -time.Hour, "small"))
		},
		func(s *State) {
			s.Models[0].ServedNames = s.Models[0].ServedNames[:1]
			s.Models = append(s.Models, Model{UID: "uid-2", Object: "other", Name: "other", ServedNames: []string{"small"}, Created: created.Add(time.Hour)})
		},
	},
	"an adapter that has a name of its model is not reached by it": {
		func(o *objects) {
			o.models[0].Spec.Aliases = []string{"small"}
			adapted(o, "small", "HuggingFaceTB/SmolLM2")
		},
		nil,
	},
	"nor is one whose name an older model has": {
		func(o *objects) {
			adapted(o, "tiny")
			serve(o, "tiny")
			o.models = append(o.models, model("uid-0", "older", time.Hour, "tiny"))
		},
		func(s *State) {
			s.Models = []Model{{UID: "uid-0", Object: "older", Name: "older", ServedNames: []string{"tiny"}, Created: created.Add(-time.Hour)}, s.Models[0]}
		},
	},
	"a model that is being deleted has no adapters": {
		func(o *objects) {
			adapted(o, "tuned")
			serve(o, "tuned")
			o.models[0].DeletionTimestamp = ptr.To(metav1.Now())
		},
		func(s *State) { s.Models[0].Deleting, s.Models[0].ServedNames = true, nil },
	},
	"a model that is being deleted is served no more and keeps its candidates": {
		func(o *objects) { o.models[0].DeletionTimestamp = ptr.To(metav1.Now()) },
		func(s *State) { s.Models[0].Deleting, s.Models[0].ServedNames = true, nil },
	},
	"of two models with one name the older has it": {
		func(o *objects) { o.models = append(o.models, model("uid-0", "older", time.Hour, "small", "tiny")) },
		func(s *State) {
			s.Models[0].ServedNames = []string{"HuggingFaceTB/SmolLM2"}
			s.Models = []Model{{
				UID: "uid-0", Object: "older", Name: "older", ServedNames: []string{"small", "tiny"}, Created: created.Add(-time.Hour),
			}, s.Models[0]}
		},
	},
	"of two of the same age, the one with the smaller UID": {
		func(o *objects) { o.models = append(o.models, model("uid-2", "other", 0, "small", "tiny")) },
		func(s *State) {
			s.Models = append(s.Models, Model{UID: "uid-2", Object: "other", Name: "other", ServedNames: []string{"tiny"}, Created: created})
		},
	},
	"a model that is being deleted leaves its names to the next": {
		func(o *objects) {
			o.models[0].DeletionTimestamp = ptr.To(metav1.Now())
			o.models = append(o.models, model("uid-2", "other", 0, "small"))
		},
		func(s *State) {
			s.Models[0].Deleting, s.Models[0].ServedNames = true, nil
			s.Models = append(s.Models, Model{UID: "uid-2", Object: "other", Name: "other", ServedNames: []string{"small"}, Created: created})
		},
	},
	"slices of another or a former model are not looked at": {
		func(o *objects) {
			o.endpoints = append(o.endpoints, slice("old", "uid-gone", endpoint("w-9", "p-9", "10.0.0.9")))
		},
		nil,
	},
	"the pods of several slices are one list": {
		func(o *objects) {
			o.endpoints = append(o.endpoints, slice("s0", "uid-1", endpoint("w-2", "p-2", "10.0.0.3")))
		},
		func(s *State) {
			s.Models[0].Candidates = append(s.Models[0].Candidates, Candidate{"w-2", "p-2", "10.0.0.3:9443", false})
		},
	},
	"a pod that goes is marked": {
		func(o *objects) { o.endpoints[0].Endpoints[1] = going(o.endpoints[0].Endpoints[1]) },
		func(s *State) { s.Models[0].Candidates[0].Terminating = true },
	},
	"a pod that is not Ready is a candidate": {
		func(o *objects) { o.endpoints[0].Endpoints[1].Conditions.Ready = ptr.To(false) }, nil,
	},
	"conditions that are not known are no reason": {
		func(o *objects) { o.endpoints[0].Endpoints[1].Conditions = discoveryv1.EndpointConditions{} }, nil,
	},
	"a pod that goes in one slice and stays in another goes": {
		func(o *objects) {
			o.endpoints = append(o.endpoints, slice("s0", "uid-1", going(endpoint("w-0", "p-0", "10.0.0.2"))))
		},
		func(s *State) { s.Models[0].Candidates[0].Terminating = true },
	},
	"and so it does when the slices come the other way round": {
		func(o *objects) {
			o.endpoints = append(o.endpoints, slice("s2", "uid-1", going(endpoint("w-0", "p-0", "10.0.0.2"))))
		},
		func(s *State) { s.Models[0].Candidates[0].Terminating = true },
	},
	"a new pod of the same name takes over from one that goes": {
		func(o *objects) {
			o.endpoints = append(o.endpoints, slice("s0", "uid-1", going(endpoint("w-0", "p-old", "10.0.0.8"))))
		},
		nil,
	},
	"the IPv4 address of a pod that has two is used": {
		func(o *objects) {
			six := slice("s0", "uid-1", endpoint("w-0", "p-0", "fd00::2"))
			six.AddressType = discoveryv1.AddressTypeIPv6
			o.endpoints = append(o.endpoints, six)
		},
		nil,
	},
	"an IPv6 address is bracketed": {
		func(o *objects) {
			o.endpoints[0].AddressType = discoveryv1.AddressTypeIPv6
			o.endpoints[0].Endpoints[1].Addresses = []string{"fd00::2"}
		},
		func(s *State) { s.Models[0].Candidates[0].Address = "[fd00::2]:9443" },
	},
	"an endpoint that is no pod is not looked at": {
		func(o *objects) { o.endpoints[0].Endpoints[1].TargetRef = nil },
		func(s *State) { s.Models[0].Candidates = s.Models[0].Candidates[1:] },
	},
	"nor one that is another kind": {
		func(o *objects) { o.endpoints[0].Endpoints[1].TargetRef.Kind = "Node" },
		func(s *State) { s.Models[0].Candidates = s.Models[0].Candidates[1:] },
	},
	"nor one of another namespace": {
		func(o *objects) { o.endpoints[0].Endpoints[1].TargetRef.Namespace = "kube-system" },
		func(s *State) { s.Models[0].Candidates = s.Models[0].Candidates[1:] },
	},
	"nor one without an address": {
		func(o *objects) { o.endpoints[0].Endpoints[1].Addresses = nil },
		func(s *State) { s.Models[0].Candidates = s.Models[0].Candidates[1:] },
	},
	"a slice without the port has no candidates": {
		func(o *objects) { o.endpoints[0].Ports = o.endpoints[0].Ports[:1] },
		func(s *State) { s.Models[0].Candidates = nil },
	},
	"a slice of host names has none": {
		func(o *objects) { o.endpoints[0].AddressType = discoveryv1.AddressTypeFQDN },
		func(s *State) { s.Models[0].Candidates = nil },
	},
	"a pod belongs to one model only": {
		func(o *objects) {
			o.models = append(o.models, model("uid-2", "other", -time.Hour, "tiny"))
			o.endpoints = append(o.endpoints, slice("s9", "uid-2", endpoint("w-0", "p-0", "10.0.0.2")))
		},
		func(s *State) {
			s.Models = append(s.Models, Model{UID: "uid-2", Object: "other", Name: "other", ServedNames: []string{"tiny"}, Created: created.Add(time.Hour)})
		},
	},
	"the router's numbers hold": {
		func(o *objects) {
			o.router = &v1alpha1.InferenceRouter{Spec: v1alpha1.InferenceRouterSpec{
				Heartbeat: v1alpha1.Heartbeat{IntervalMilliseconds: 200, TimeoutMilliseconds: 100, FailuresToDrop: 5, SuccessesToAdmit: 4},
				Ring:      v1alpha1.Ring{VirtualNodes: 40},
				Timeouts:  v1alpha1.Timeouts{FirstByteSeconds: 7, IdleSeconds: 8},
				Placement: v1alpha1.Placement{Policy: v1alpha1.PlacementConsistentHash},
				Resume:    v1alpha1.ResumeDisabled,
				Auth:      v1alpha1.Auth{Mode: v1alpha1.AuthTrustedHeaders, TenantCache: v1alpha1.TenantCacheIsolated},
				Admission: v1alpha1.Admission{WatchPercent: 30, ScaleOutPercent: 40, AdmitPercent: 50, RefusePercent: 60},
				Queue:     v1alpha1.Queue{MaxRequests: new(int32(5))},
				Hold:      v1alpha1.Hold{MaxRequests: new(int32(6)), MaxSeconds: new(int32(9))},
			}}
			o.router.Spec.Ring.MaxLoadPercent = 200
		},
		func(s *State) {
			s.Settings = Settings{
				Heartbeat:    Heartbeat{200 * time.Millisecond, 100 * time.Millisecond, 5, 4},
				VirtualNodes: 40, MaxLoadPercent: 200, Policy: "ConsistentHash", TrustHeaders: true, Isolate: true,
				Tiers: DefaultSettings().Tiers, DefaultTier: "default",
				Admission: Admission{WatchPercent: 30, ScaleOutPercent: 40, AdmitPercent: 50, RefusePercent: 60, MaxQueued: 5, MaxHeld: 6, MaxHold: 9 * time.Second},
				FirstByte: 7 * time.Second, Idle: 8 * time.Second,
			}
		},
	},
	"tiers are by falling priority, and the least is for those that name none": {
		func(o *objects) {
			o.router = &v1alpha1.InferenceRouter{Spec: v1alpha1.InferenceRouterSpec{Tiers: []v1alpha1.Tier{
				{Name: "free", WhenBusy: v1alpha1.WhenBusyRefuse}, {Name: "gold", Priority: new(int32(9)), MaxQueueSeconds: new(int32(7))},
			}}}
		},
		func(s *State) {
			s.Settings.Tiers = []Tier{
				{Name: "gold", Priority: 9, WhenBusy: "Queue", MaxQueue: 7 * time.Second},
				{Name: "free", WhenBusy: "Refuse", MaxQueue: 30 * time.Second},
			}
			s.Settings.DefaultTier = "free"
		},
	},
	"a default tier that is named holds": {
		func(o *objects) {
			o.router = &v1alpha1.InferenceRouter{Spec: v1alpha1.InferenceRouterSpec{
				Tiers: []v1alpha1.Tier{{Name: "a"}, {Name: "b", Priority: new(int32(1))}}, DefaultTier: "b"}}
		},
		func(s *State) {
			s.Settings.Tiers = []Tier{
				{Name: "b", Priority: 1, WhenBusy: "Queue", MaxQueue: 30 * time.Second},
				{Name: "a", WhenBusy: "Queue", MaxQueue: 30 * time.Second},
			}
			s.Settings.DefaultTier = "b"
		},
	},
	"numbers that the router leaves out keep their defaults": {
		func(o *objects) { o.router = &v1alpha1.InferenceRouter{} }, nil,
	},
	"an empty namespace is a state as well": {
		func(o *objects) { *o = objects{} },
		func(s *State) { s.Models = nil },
	},
}

func TestWhatObjectsMean(t *testing.T) {
	for name, c := range means {
		t.Run(name, func(t *testing.T) {
			o, want := base(), baseState()
			if c.change != nil {
				c.change(o)
			}
			if c.want != nil {
				c.want(&want)
			}
			for range 5 { // in any order
				rand.Shuffle(len(o.models), reflect.Swapper(o.models))
				rand.Shuffle(len(o.endpoints), reflect.Swapper(o.endpoints))
				if got := build(o.models, o.endpoints, o.router); !sameState(got, want) {
					t.Fatalf("got  %+v\nwant %+v", got, want)
				}
			}
		})
	}
}

// sameState compares states; an empty list is as good as none.
func sameState(a, b State) bool {
	for _, s := range []*State{&a, &b} {
		s.Models = append([]Model{}, s.Models...)
		for i := range s.Models {
			s.Models[i].Candidates = append([]Candidate{}, s.Models[i].Candidates...)
			s.Models[i].ServedNames = append([]string{}, s.Models[i].ServedNames...)
		}
	}
	return reflect.DeepEqual(a, b)
}

func TestBuildChangesNoObject(t *testing.T) {
	for name, c := range means {
		t.Run(name, func(t *testing.T) {
			o, again := base(), base()
			if c.change != nil {
				c.change(o)
			}
			copies := objects{router: o.router.DeepCopy()}
			for _, m := range o.models {
				copies.models = append(copies.models, m.DeepCopy())
			}
			for _, s := range o.endpoints {
				copies.endpoints = append(copies.endpoints, s.DeepCopy())
			}
			build(o.models, o.endpoints, o.router)
			if !reflect.DeepEqual(*o, copies) {
				t.Errorf("objects were changed; the base is %+v", again)
			}
		})
	}
}

func TestBandsThatAreAbsentKeepTheirOrder(t *testing.T) {
	for name, c := range map[string]struct {
		spec v1alpha1.Admission
		want [4]int
	}{
		"none is there":                     {v1alpha1.Admission{}, [4]int{75, 80, 90, 95}},
		"requests wait early":               {v1alpha1.Admission{AdmitPercent: 50, RefusePercent: 60}, [4]int{50, 50, 50, 60}},
		"people look late":                  {v1alpha1.Admission{WatchPercent: 85}, [4]int{85, 85, 90, 95}},
		"more workers would help early":     {v1alpha1.Admission{ScaleOutPercent: 60}, [4]int{60, 60, 90, 95}},
		"people look and all else is early": {v1alpha1.Admission{WatchPercent: 20, AdmitPercent: 50, RefusePercent: 60}, [4]int{20, 50, 50, 60}},
		"all are there": {v1alpha1.Admission{WatchPercent: 10, ScaleOutPercent: 20, AdmitPercent: 30, RefusePercent: 40},
			[4]int{10, 20, 30, 40}},
	} {
		a := settings(&v1alpha1.InferenceRouter{Spec: v1alpha1.InferenceRouterSpec{Admission: c.spec}}).Admission
		if got := [4]int{a.WatchPercent, a.ScaleOutPercent, a.AdmitPercent, a.RefusePercent}; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
