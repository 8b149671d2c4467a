package gateway

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/telemetry"
)

// tiered is a rig with two tiers.
func tiered(trust bool) *rig {
	r := newRig(clock.RealClock{}, says("hi"))
	r.SetState(NewState([]Model{{UID: "u1", Name: "small", ServedNames: []string{"small"}}}, Settings{
		FirstByte: time.Minute, Idle: time.Minute, TrustHeaders: trust, DefaultTier: "free",
		Tiers: []Tier{{Name: "gold", Priority: 9}, {Name: "free", Priority: -1}},
	}))
	return r
}

func TestHeadersSayWhoseARequestIsWhereTheyAreTrusted(t *testing.T) {
	for name, c := range map[string]struct {
		trust        bool
		tier, tenant string
		want         Call
	}{
		"trusted":         {true, "gold", "acme", Call{Tier: "gold", Tenant: "acme", Priority: 9}},
		"trusted, absent": {true, "", "", Call{Tier: "free", Priority: -1}},
		"not trusted":     {false, "gold", "acme", Call{Tier: "free", Priority: -1}},
		"a long name":     {true, "gold", strings.Repeat("x", mostTenant), Call{Tier: "gold", Tenant: strings.Repeat("x", mostTenant), Priority: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			r := tiered(c.trust)
			if w := r.do("POST", pathChat, ask, telemetry.HeaderTier, c.tier, telemetry.HeaderTenant, c.tenant); w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if got := r.script.calls[0]; got.Tier != c.want.Tier || got.Tenant != c.want.Tenant || got.Priority != c.want.Priority {
				t.Errorf("tier %q, tenant %q, priority %d", got.Tier, got.Tenant, got.Priority)
			}
		})
	}
}

func TestTenantsThatAreIsolatedShareNeitherCacheNorKey(t *testing.T) {
	r := tiered(true)
	s := *r.state.Load()
	s.settings.Isolate = true
	r.SetState(&s)
	for _, tenant := range []string{"a", "b", ""} {
		r.do("POST", pathChat, ask, telemetry.HeaderTenant, tenant, telemetry.HeaderSession, "one")
	}
	a, b, none := r.script.calls[0], r.script.calls[1], r.script.calls[2]
	if a.Salt != "a" || b.Salt != "b" || none.Salt != "" {
		t.Errorf("salts %q, %q and %q", a.Salt, b.Salt, none.Salt)
	}
	if string(a.Key) == string(b.Key) || string(a.Key) == string(none.Key) {
		t.Error("two tenants have one key")
	}
}

func TestTenantsOfDifferentNamesAreDifferentTenantsHoweverTheirNamesAre(t *testing.T) {
	r := tiered(true)
	s := *r.state.Load()
	s.settings.Isolate = true
	r.SetState(&s)
	long := strings.Repeat("x", mostTenant)
	names := []string{long, long + "a", long + "b", "\xff", "\xfe", "sha256:", tenant(long + "a")}
	salts := map[string]string{}
	for i, name := range names {
		if w := r.do("POST", pathChat, ask, telemetry.HeaderTenant, name, telemetry.HeaderSession, "one"); w.Code != 200 {
			t.Fatalf("%q: %d %s", name, w.Code, w.Body)
		}
		c := r.script.calls[i]
		if other, taken := salts[c.Salt]; taken || c.Salt == "" || c.Salt != c.Tenant {
			t.Errorf("%q has tenant %q and salt %q, which %q has too", name, c.Tenant, c.Salt, other)
		}
		if len(c.Salt) > mostTenant || !utf8.ValidString(c.Salt) {
			t.Errorf("%q has the salt %q, which no worker can be told", name, c.Salt)
		}
		salts[c.Salt] = name
	}
}

func TestATierThatIsNotThereIsRefusedWithThoseThatAre(t *testing.T) {
	r := tiered(true)
	w := r.do("POST", pathChat, ask, telemetry.HeaderTier, "platinum")
	if w.Code != 400 || !strings.Contains(w.Body.String(), `"unknown_tier"`) || !strings.Contains(w.Body.String(), "gold, free") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if r.script.count() != 0 {
		t.Error("a worker was asked")
	}
}

func TestAnAnswerAtOnceWaitsNoLongerThanItsClient(t *testing.T) {
	for name, c := range map[string]struct {
		body, header string
		want         time.Duration
	}{
		"as long as it says, less a second": {ask, "30", 29 * time.Second},
		"of very little the half":           {ask, "0.5", 250 * time.Millisecond},
		"a stream is kept alive":            {askStream, "30", 0},
		"no number":                         {ask, "soon", 0},
		"not a time":                        {ask, "NaN", 0},
		"below nothing":                     {ask, "-1", 0},
		"absurd":                            {ask, "1e300", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := tiered(false)
			before := time.Now()
			r.do("POST", pathChat, c.body, telemetry.HeaderTimeout, c.header)
			got := r.script.calls[0].Deadline
			if c.want == 0 != got.IsZero() {
				t.Fatalf("the deadline is %s", got)
			}
			if c.want > 0 && got.Before(before.Add(c.want)) {
				t.Errorf("the deadline is %s after the request, want %s", got.Sub(before), c.want)
			}
		})
	}
}
