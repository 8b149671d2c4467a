package llamacpp

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

func chatOf(content string) engine.Chat {
	return engine.Chat{Messages: fmt.Appendf(nil, `[{"role":"user","content":"%s"}]`, content), Tools: []byte(weather)}
}

// A template that has been rendered once is taken away, so that whatever needs it again gets no prompt of it.
func TestTheSplittersOfARequestRenderNothing(t *testing.T) {
	tmpl := newTemplate(calling, "m", "", "")
	think, now := chatOf("think"), chatOf("now")
	for _, c := range []engine.Chat{think, now} {
		if _, err := tmpl.render(c); err != nil {
			t.Fatal(err)
		}
	}
	tmpl.broken = "it was taken away"
	for range 3 {
		if got := tmpl.splitter(&think).Push("Hm"); len(got) != 1 || got[0].Reasoning != "Hm" {
			t.Errorf("where the prompt opens the reasoning: %+v", got)
		}
		if got := tmpl.splitter(&now).Push("Hm"); len(got) != 1 || got[0].Text != "Hm" {
			t.Errorf("where it doesn't: %+v", got)
		}
	}
}

func TestASplitterOfAChatThatIsNotRememberedRendersIt(t *testing.T) {
	tmpl := newTemplate(calling, "m", "", "")
	think := chatOf("think")
	if got := tmpl.splitter(&think).Push("Hm"); len(got) != 1 || got[0].Reasoning != "Hm" {
		t.Errorf("got %+v", got)
	}
}

func TestAsManyEndingsAreKeptAsMay(t *testing.T) {
	tmpl := newTemplate(calling, "m", "", "")
	var all sync.WaitGroup
	for part := range 4 {
		all.Go(func() {
			for i := range keptEndings / 2 {
				c := chatOf(fmt.Sprint(i % 700 * (part + 1)))
				if _, err := tmpl.render(c); err != nil {
					t.Error(err)
				}
				_ = tmpl.splitter(&c)
			}
		})
	}
	all.Wait()
	first, last := chatOf("first"), chatOf("last")
	tmpl.endings.put(&first, tmpl.dialect)
	for i := range keptEndings {
		c := chatOf(fmt.Sprint("more", i))
		tmpl.endings.put(&c, tmpl.dialect)
	}
	tmpl.endings.put(&last, tmpl.dialect)
	tmpl.endings.put(&last, tmpl.dialect)
	_, oldest := tmpl.endings.get(&first)
	_, newest := tmpl.endings.get(&last)
	if n := len(tmpl.endings.known); n != keptEndings || oldest || !newest {
		t.Errorf("%d are kept, the oldest %t, the newest %t; want %d, the newest and not the oldest", n, oldest, newest, keptEndings)
	}
}
