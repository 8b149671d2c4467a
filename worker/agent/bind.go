package agent

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// binder makes flags whose defaults come from the environment.
type binder struct {
	f      *flag.FlagSet
	getenv func(string) string
	bad    []error // variables that could not be read
}

// variable is the environment's name of a flag.
func variable(name string) string {
	return "RINGFLEET_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// text makes a flag for a string. The last variable of also and the flag's own that is set gives the default.
func (b *binder) text(p *string, name, fallback, usage string, also ...string) {
	for _, key := range append(also, variable(name)) {
		if e := b.getenv(key); e != "" {
			fallback = e
		}
	}
	b.f.StringVar(p, name, fallback, usage)
}

func (b *binder) integer(p *int, name string, fallback int, usage string) {
	b.f.IntVar(p, name, b.number(variable(name), fallback), usage)
}

func (b *binder) duration(p *time.Duration, name string, fallback time.Duration, usage string) {
	key := variable(name)
	if e := b.getenv(key); e != "" {
		d, err := time.ParseDuration(e)
		if err != nil {
			b.bad = append(b.bad, fmt.Errorf("%s: %q is not a duration such as 600s", key, e))
		} else {
			fallback = d
		}
	}
	b.f.DurationVar(p, name, fallback, usage)
}

func (b *binder) truth(p *bool, name, usage string) {
	key, fallback := variable(name), false
	if e := b.getenv(key); e != "" {
		v, err := strconv.ParseBool(e)
		if err != nil {
			b.bad = append(b.bad, fmt.Errorf("%s: %q is neither true nor false", key, e))
		}
		fallback = v
	}
	b.f.BoolVar(p, name, fallback, usage)
}

// number reads a variable.
func (b *binder) number(key string, fallback int) int {
	e := b.getenv(key)
	if e == "" {
		return fallback
	}
	n, err := strconv.Atoi(e)
	if err != nil {
		b.bad = append(b.bad, fmt.Errorf("%s: %q is not a whole number", key, e))
		return fallback
	}
	return n
}
