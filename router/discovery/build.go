package discovery

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// build makes the state from the objects, in any order; router may be nil. It changes none of them.
func build(models []*v1alpha1.InferenceModel, endpoints []*discoveryv1.EndpointSlice, router *v1alpha1.InferenceRouter) State {
	s := State{Synced: true, Settings: settings(router)}
	models = slices.SortedFunc(slices.Values(models), func(a, b *v1alpha1.InferenceModel) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	slicesOf := byModel(endpoints)
	names, pods := map[string]bool{}, map[string]bool{}
	for _, m := range models {
		out := Model{
			UID: string(m.UID), Object: m.Name, Name: cmp.Or(m.Spec.ModelName, m.Name),
			Created: m.CreationTimestamp.UTC(), Deleting: m.DeletionTimestamp != nil,
		}
		if !out.Deleting {
			out.ServedNames = fresh(names, claimed(m, out.Name))
			out.Adapters = adapters(m, out)
		}
		for _, c := range candidates(slicesOf[out.UID]) {
			if len(fresh(pods, []string{c.PodName})) == 1 {
				out.Candidates = append(out.Candidates, c)
			}
		}
		s.Models = append(s.Models, out)
	}
	return s
}

// claimed are the names that the manager has accepted and the spec has still. The two are written at different times: the
// name of an adapter that the spec has lost must not be answered by the model itself.
func claimed(m *v1alpha1.InferenceModel, own string) []string {
	claims := append([]string{own}, m.Spec.Aliases...)
	for _, a := range m.Spec.Adapters {
		claims = append(claims, a.Name)
	}
	var names []string
	for _, name := range m.Status.ServedNames {
		if slices.Contains(claims, name) {
			names = append(names, name)
		}
	}
	return names
}

// adapters are the served names of out that are adapters of m. A name that is the model's own as well is the model.
func adapters(m *v1alpha1.InferenceModel, out Model) []string {
	var names []string
	for _, a := range m.Spec.Adapters {
		own := a.Name == out.Name || slices.Contains(m.Spec.Aliases, a.Name)
		if !own && slices.Contains(out.ServedNames, a.Name) {
			names = append(names, a.Name)
		}
	}
	return names
}

// fresh returns those of in that are not in seen, and adds them. Of two models that say they have one name, as they
// may while the manager moves it from one to the other, the older has it.
func fresh(seen map[string]bool, in []string) []string {
	var out []string
	for _, s := range in {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// byModel sorts slices with addresses by the UID of their model.
func byModel(endpoints []*discoveryv1.EndpointSlice) map[string][]*discoveryv1.EndpointSlice {
	out := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range endpoints {
		if s.AddressType != discoveryv1.AddressTypeFQDN {
			uid := s.Labels[v1alpha1.LabelModelUID]
			out[uid] = append(out[uid], s)
		}
	}
	return out
}

// candidates are the pods in a model's slices, one for each name.
func candidates(mine []*discoveryv1.EndpointSlice) []Candidate {
	slices.SortFunc(mine, func(a, b *discoveryv1.EndpointSlice) int { // IPv4 before IPv6
		return cmp.Or(cmp.Compare(a.AddressType, b.AddressType), cmp.Compare(a.Name, b.Name))
	})
	byName := map[string]Candidate{}
	for _, s := range mine {
		port, ok := grpcPort(s)
		if !ok {
			continue
		}
		for _, e := range s.Endpoints {
			if c, ok := candidate(s.Namespace, e, port); ok {
				if before, dup := byName[c.PodName]; dup {
					c = merge(before, c)
				}
				byName[c.PodName] = c
			}
		}
	}
	out := make([]Candidate, 0, len(byName))
	for _, c := range byName {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Candidate) int { return cmp.Compare(a.PodName, b.PodName) })
	return out
}

// merge decides between two entries of one name, as they may appear while slices are rewritten. Of one pod that goes
// in one of them, the word that it goes is the later one: no pod comes back. Of two pods, the one that stays.
func merge(a, b Candidate) Candidate {
	if a.PodUID == b.PodUID {
		a.Terminating = a.Terminating || b.Terminating
		return a
	}
	if a.Terminating && !b.Terminating {
		return b
	}
	return a
}

// candidate reads an endpoint; false when it isn't a pod of the slice's namespace with an address.
func candidate(namespace string, e discoveryv1.Endpoint, port int32) (Candidate, bool) {
	ref := e.TargetRef
	if ref == nil || ref.Kind != "Pod" || ref.Name == "" || ref.Namespace != "" && ref.Namespace != namespace || len(e.Addresses) == 0 {
		return Candidate{}, false
	}
	return Candidate{
		PodName: ref.Name, PodUID: string(ref.UID),
		Address:     net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(port))),
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
	}, true
}

func grpcPort(s *discoveryv1.EndpointSlice) (int32, bool) {
	for _, p := range s.Ports {
		tcp := p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP
		if p.Name != nil && *p.Name == v1alpha1.PortGRPC && p.Port != nil && tcp {
			return *p.Port, true
		}
	}
	return 0, false
}

// settings reads the router's numbers; those that it leaves out keep their defaults.
func settings(r *v1alpha1.InferenceRouter) Settings {
	s := DefaultSettings()
	if r == nil {
		return s
	}
	h := r.Spec.Heartbeat
	override(&s.Heartbeat.Interval, h.IntervalMilliseconds, time.Millisecond)
	override(&s.Heartbeat.Timeout, h.TimeoutMilliseconds, time.Millisecond)
	override(&s.Heartbeat.FailuresToDrop, h.FailuresToDrop, 1)
	override(&s.Heartbeat.SuccessesToAdmit, h.SuccessesToAdmit, 1)
	override(&s.VirtualNodes, r.Spec.Ring.VirtualNodes, 1)
	override(&s.MaxLoadPercent, r.Spec.Ring.MaxLoadPercent, 1)
	s.Policy = string(cmp.Or(r.Spec.Placement.Policy, v1alpha1.PlacementPolicy(s.Policy)))
	s.Resume = r.Spec.Resume != v1alpha1.ResumeDisabled
	s.TrustHeaders = r.Spec.Auth.Mode == v1alpha1.AuthTrustedHeaders
	s.Isolate = r.Spec.Auth.TenantCache == v1alpha1.TenantCacheIsolated
	tiers(&s, r)
	a := &s.Admission
	bands(a, r.Spec.Admission)
	a.MaxQueued = int(deref(r.Spec.Queue.MaxRequests, int32(a.MaxQueued)))
	a.MaxHeld = int(deref(r.Spec.Hold.MaxRequests, int32(a.MaxHeld)))
	a.MaxHold = time.Duration(deref(r.Spec.Hold.MaxSeconds, int32(a.MaxHold/time.Second))) * time.Second
	override(&s.FirstByte, r.Spec.Timeouts.FirstByteSeconds, time.Second)
	override(&s.Idle, r.Spec.Timeouts.IdleSeconds, time.Second)
	return s
}

// bands reads the levels. One that is absent has its default, as near to it as those that are there allow.
func bands(a *Admission, spec v1alpha1.Admission) {
	override(&a.AdmitPercent, spec.AdmitPercent, 1)
	override(&a.RefusePercent, spec.RefusePercent, 1)
	override(&a.WatchPercent, spec.WatchPercent, 1)
	override(&a.ScaleOutPercent, spec.ScaleOutPercent, 1)
	if spec.ScaleOutPercent == 0 {
		a.ScaleOutPercent = max(a.ScaleOutPercent, int(spec.WatchPercent))
	}
	a.ScaleOutPercent = min(a.ScaleOutPercent, a.AdmitPercent)
	a.WatchPercent = min(a.WatchPercent, a.ScaleOutPercent)
}

// tiers reads the tiers. Requests that name none have the one with the least priority unless another is named.
func tiers(s *Settings, r *v1alpha1.InferenceRouter) {
	if len(r.Spec.Tiers) == 0 {
		return
	}
	s.Tiers = nil
	for _, t := range r.Spec.Tiers {
		s.Tiers = append(s.Tiers, Tier{
			Name: t.Name, Priority: deref(t.Priority, 0), WhenBusy: string(cmp.Or(t.WhenBusy, v1alpha1.WhenBusyQueue)),
			MaxQueue: time.Duration(deref(t.MaxQueueSeconds, 30)) * time.Second,
		})
	}
	slices.SortFunc(s.Tiers, func(a, b Tier) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	s.DefaultTier = cmp.Or(r.Spec.DefaultTier, s.Tiers[len(s.Tiers)-1].Name)
}

func deref(p *int32, otherwise int32) int32 {
	if p == nil {
		return otherwise
	}
	return *p
}

func override[T ~int | ~int64](to *T, value int32, unit T) {
	if value > 0 {
		*to = T(value) * unit
	}
}
