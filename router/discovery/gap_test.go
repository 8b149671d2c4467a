package discovery

import (
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// gaps are what happens while no watch is open: nobody is told of it when it does.
var gaps = map[string]struct {
	happens func(*apiServer)
	want    []string // addresses of the model's candidates; none: the model is gone too
}{
	"a pod is deleted": {
		func(a *apiServer) { a.put("endpointslices", slice("s1", "uid-1", endpoint("w-0", "p-0", "10.0.0.2"))) },
		[]string{"10.0.0.2:9443"},
	},
	"a pod is made anew elsewhere": {
		func(a *apiServer) {
			a.put("endpointslices", slice("s1", "uid-1", endpoint("w-1", "p-9", "10.0.0.9"), endpoint("w-0", "p-0", "10.0.0.2")))
		},
		[]string{"10.0.0.2:9443", "10.0.0.9:9443"},
	},
	"a pod has lost its address": {
		func(a *apiServer) {
			evicted := endpoint("w-1", "p-1", "")
			evicted.Addresses = nil
			a.put("endpointslices", slice("s1", "uid-1", evicted, endpoint("w-0", "p-0", "10.0.0.2")))
		},
		[]string{"10.0.0.2:9443"},
	},
	"a slice goes with all of its pods, and another one comes": {
		func(a *apiServer) {
			a.remove("endpointslices", "s1")
			a.put("endpointslices", slice("s2", "uid-1", endpoint("w-7", "p-7", "10.0.0.7")))
		},
		[]string{"10.0.0.7:9443"},
	},
	"the model is deleted": {
		func(a *apiServer) { a.remove("inferencemodels", "smollm2"); a.remove("endpointslices", "s1") },
		nil,
	},
}

func TestWhatGoesWhileNoWatchIsOpenIsGoneAfterwards(t *testing.T) {
	for name, c := range gaps {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t)
			o := base()
			a.put("inferencemodels", o.models[0])
			a.put("endpointslices", o.endpoints[0])
			states := watch(t, a)
			if first := <-states; len(first.Models) != 1 || len(first.Models[0].Candidates) != 2 {
				t.Fatalf("the first state is %+v", first)
			}
			a.away(true)
			c.happens(a)
			a.away(false)
			until(t, states, "has what is there now", func(s State) bool {
				var got []string
				for _, m := range s.Models {
					for _, x := range m.Candidates {
						got = append(got, x.Address)
					}
				}
				return slices.Equal(got, c.want) && (len(s.Models) > 0) == (c.want != nil)
			})
		})
	}
}

func TestAnAddressHasThePortOfItsSlice(t *testing.T) {
	o := base()
	other := slice("s2", "uid-1", endpoint("w-2", "p-2", "10.0.0.3"))
	other.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("grpc"), Port: ptr.To[int32](7000)}}
	s := build(o.models, append(o.endpoints, other), nil)
	var got []string
	for _, c := range s.Models[0].Candidates {
		got = append(got, c.Address)
	}
	if want := []string{"10.0.0.2:9443", "10.0.0.1:9443", "10.0.0.3:7000"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
