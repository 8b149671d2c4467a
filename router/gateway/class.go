package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringfleet/ringfleet/api/telemetry"
)

const (
	// mostTenant bounds a tenant's name, in bytes; digested begins one that stands for another.
	mostTenant = 128
	digested   = "sha256:"
	// reply is how long before a client gives up it is told that its request still waits.
	reply = time.Second
	// mostTimeout bounds what a client says that it waits.
	mostTimeout = 24 * time.Hour
)

// classify says how urgent a call is, whose it is, and how long its client waits.
func (x *exchange) classify(s *State, c *Call) error {
	c.Tier = s.settings.DefaultTier
	if s.settings.TrustHeaders {
		if name := x.r.Header.Get(telemetry.HeaderTier); name != "" {
			c.Tier = name
		}
		c.Tenant = tenant(x.r.Header.Get(telemetry.HeaderTenant))
	}
	if s.settings.Isolate && c.Tenant != "" {
		c.Salt = c.Tenant
		c.Key = appendName(append(c.Key, 0), "tenant", c.Tenant)
	}
	known := c.Tier == s.settings.DefaultTier
	for _, t := range s.settings.Tiers {
		if t.Name == c.Tier {
			c.Priority, known = t.Priority, true
		}
	}
	if !known {
		return &unknownTierError{name: c.Tier, tiers: s.settings.Tiers}
	}
	x.tier = c.Tier
	streams := c.Chat != nil && c.Chat.Stream // comments keep its client waiting
	if patience := x.patience(); patience > 0 && !streams {
		c.Deadline = x.began.Add(max(patience-reply, patience/2))
	}
	return nil
}

// tenant is what a tenant of that name is known by, of at most mostTenant bytes: no two names come to the same. A name that
// is too long, or that no worker could be told because it isn't UTF-8, becomes its digest, as does one that looks like a digest.
func tenant(name string) string {
	if len(name) <= mostTenant && utf8.ValidString(name) && !strings.HasPrefix(name, digested) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return digested + hex.EncodeToString(sum[:])
}

// patience is how long the client waits; 0 when it doesn't say.
func (x *exchange) patience() time.Duration {
	a, b := timeout(x.r.Header.Get(telemetry.HeaderTimeout)), timeout(x.r.Header.Get(telemetry.HeaderReadTimeout))
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// timeout reads a number of seconds; 0 when there is none that makes sense.
func timeout(s string) time.Duration {
	if s == "" {
		return 0
	}
	seconds, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(seconds) || seconds <= 0 || seconds > mostTimeout.Seconds() {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}
