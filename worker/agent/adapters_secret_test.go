package agent

import (
	"strings"
	"testing"
)

func TestNoRefusalOfAdaptersSaysWhatSignsTheirURIs(t *testing.T) {
	const query = "X-Amz-Signature=c0ffee"
	for name, c := range map[string]struct {
		sources string
		change  func(*Options)
		says    string
	}{
		"an engine that loads none": {`[{"name":"a","uri":"https://h/a?` + query + `"},{"name":"b","uri":"https://h/b?` + query + `"}]`, func(o *Options) {
			beside(o)
			o.Server.Adapters, o.Adapters.Link = false, "/links"
		}, "--adapter-sources of 2 adapters: want --engine-adapters"},
		"an engine without a link":  {`[{"name":"a","uri":"https://h/a?` + query + `"}]`, beside, "--adapters-link"},
		"a claim":                   {`[{"name":"a","uri":"pvc://c/a?` + query + `"}]`, nil, `entry 0 ("a"): uri pvc://c/a: want one to fetch from`},
		"a file of the machine":     {`[{"name":"a","uri":"file:///a?` + query + `"}]`, nil, `entry 0 ("a"): uri file:///a: want one to fetch from`},
		"a uri that can't be read":  {`[{"name":"a","uri":"https://h/%zz?` + query + `"}]`, nil, `entry 0 ("a"): `},
		"a uri of another kind":     {`[{"name":"a","uri":"ftp://h/a?` + query + `"}]`, nil, `entry 0 ("a"): `},
		"a repository that is none": {`[{"name":"a","uri":"hf://a?` + query + `"}]`, nil, `entry 0 ("a"): `},
		"no list":                   {`{"name":"a","uri":"https://h/a?` + query + `"}`, nil, "want a JSON list of adapters"},
		"a uri that is no text":     {`[{"name":"a","uri":["https://h/a?` + query + `"]}]`, nil, "want a JSON list of adapters"},
		"a list that breaks off":    {`[{"name":"a","uri":"https://h/a?` + query, nil, "want a JSON list of adapters"},
	} {
		o := parse(t, nil, "--model=m", "--namespace=n")
		o.Adapters.Sources = c.sources
		if c.change != nil {
			c.change(&o)
		}
		err := o.Validate()
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "c0ffee") {
			t.Errorf("%s: got %v, want %q and no signature", name, err, c.says)
		}
	}
}
