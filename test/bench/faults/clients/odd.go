package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// chatWith is a chat with further members, as they are written.
func chatWith(members string) string {
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]%s}`, rig.ModelName, members)
}

// odd are bodies that are no JSON, or no reasonable one. Each must be refused by 400, and its parameter named where there is
// one: before the body's first byte there is none.
func odd() []struct{ name, body, param string } {
	var keys strings.Builder
	for i := range 1_000_000 {
		fmt.Fprintf(&keys, `,"%s":0`, strconv.FormatInt(int64(i), 36))
	}
	const deep = 10_000
	return []struct{ name, body, param string }{
		{"10,000 levels", chatWith(`,"metadata":` + strings.Repeat("[", deep) + strings.Repeat("]", deep)), "metadata"},
		{"1,000,000 keys", chatWith(keys.String()), "*"},
		{"a parameter twice", chatWith(`,"max_tokens":1,"max_tokens":2`), "max_tokens"},
		{"bytes that are not UTF-8", chatWith(",\"user\":\"a\xff\xfeb\""), "user"},
		{"half a surrogate pair", chatWith(`,"user":"a\ud800b"`), "user"},
		{"a NUL character", chatWith(`,"user":"a\u0000b"`), "user"},
		{"a byte order mark", "\xef\xbb\xbf" + chatWith(""), ""},
		{"1e400", chatWith(`,"temperature":1e400`), "temperature"},
	}
}

// oddJSON is F77.
func oddJSON() []trial.Trial {
	return []trial.Trial{{
		ID: "F77", Says: "bodies that are no JSON, or none that anybody means", Times: 20, Takes: 2 * time.Second, Spec: rig.Spec{Workers: 1},
		Run: func(ctx context.Context, r *rig.Rig, times int) (figures []bench.Figure, err error) {
			r.Foreign()
			for _, o := range odd() {
				request := head(len(o.body)) + o.body
				right := 0
				var cpu trial.Series
				for range times {
					before, err := r.Routers[0].CPU()
					if err != nil {
						return nil, err
					}
					a, err := ask(ctx, r, request)
					if err != nil {
						return nil, fmt.Errorf("%s: %w", o.name, err)
					}
					if err := command.Pause(ctx, 5*time.Millisecond); err != nil { // what is left to do after the answer
						return nil, err
					}
					after, err := r.Routers[0].CPU()
					if err != nil {
						return nil, err
					}
					cpu.Took(after - before)
					if refused(a, o.param) {
						right++
					} else {
						fmt.Fprintf(r.Shared.Out, "  F77 %s: answered %d %.200s\n", o.name, a.status, a.body)
					}
				}
				figures = append(figures,
					bench.AtLeast("F77 "+o.name+", refused by 400 with its parameter", 100*float64(right)/float64(times), "%", 100),
					bench.AtMost("F77 "+o.name+", greatest processor time", 1000*cpu.Max(), "ms", 50))
			}
			return figures, nil
		},
	}}
}

// refused reports whether an answer is 400 and names the parameter; * stands for any.
func refused(a answer, param string) bool {
	var e struct {
		Error struct {
			Message string  `json:"message"`
			Param   *string `json:"param"`
			Code    string  `json:"code"`
		} `json:"error"`
	}
	if a.status != 400 || json.Unmarshal([]byte(a.body), &e) != nil || e.Error.Message == "" || e.Error.Code == "" {
		return false
	}
	named := ""
	if e.Error.Param != nil {
		named = *e.Error.Param
	}
	return named == param || param == "*" && named != ""
}
