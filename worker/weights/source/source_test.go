package source

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringfleet/ringfleet/worker/weights/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestURIsAreRead(t *testing.T) {
	d := "sha256:" + strings.Repeat("a", 64)
	for uri, want := range map[string]string{
		"hf://org/Model-1.5_x":               "hf://org/Model-1.5_x@main",
		"hf://gpt2":                          "hf://gpt2@main",
		"hf://org/m@refs/pr/1":               "hf://org/m@refs/pr/1",
		"s3://bucket/a/b.gguf":               "s3://bucket/a/b.gguf",
		"s3://bucket":                        "s3://bucket",
		"s3://bucket/a/":                     "s3://bucket/a/",
		"https://h.example/a.gguf?sig=s#f":   "https://h.example/a.gguf",
		"oci://ghcr.io/org/m":                "oci://ghcr.io/org/m:latest",
		"oci://localhost:5000/org/m:v1@" + d: "oci://localhost:5000/org/m:v1@" + d,
		"oci://ghcr.io/org/m@" + d:           "oci://ghcr.io/org/m@" + d,
		"pvc://claim/folder":                 "pvc://claim/folder",
		"file:///models/m.gguf":              "file:///models/m.gguf",
	} {
		if u, err := Parse(uri); err != nil || u.String() != want {
			t.Errorf("%s: got %s, %v", uri, u, err)
		}
	}
	for _, uri := range []string{
		"", "m.gguf", "http://h.example/m.gguf", "hf://", "hf://a/b/c", "hf://a/../b", "hf://a/b@", "hf://a/b@../../x", "hf://a b/c", "hf://org/m@x?y",
		"s3://", "s3://B/x", "s3://bucket//x", "s3://bucket/../x", "s3://bucket/a\nb", "https://", "https:///x", "https://u:p@h.example/x",
		"oci://m", "oci://ghcr.io/Org/m:", "oci://ghcr.io/org/m@sha256:1", "pvc://", "pvc://claim/../x", "file://host", "file://x/y", "file:///../etc/passwd",
		"gs://bucket/x", "HF://a/b", "file:///a\x00b", "hf://a/" + strings.Repeat("b", 5000),
	} {
		_, err := Parse(uri)
		var e *Error
		if !errors.As(err, &e) || e.Kind != Unusable || len(e.Says) > 600 {
			t.Errorf("%.80q: got %v", uri, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"hf://org/m@main", "s3://b/k", "https://h.example/x?y", "oci://r.io/a:b", "pvc://c/d", "file:///x", "hf://../x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := Parse(s)
		if err != nil {
			return
		}
		if strings.Contains(u.Path, "..") && strings.Contains("/"+u.Path+"/", "/../") || strings.ContainsAny(u.Name, "?#\n ") {
			t.Errorf("%q became %+v", s, u)
		}
		if u.Scheme != HTTPS {
			if again, err := Parse(u.String()); err != nil || again != u {
				t.Errorf("%q became %s, which becomes %s, %v", s, u, again, err)
			}
		}
	})
}

func TestNamesOfFilesStayBelowTheirRoot(t *testing.T) {
	for name, want := range map[string]bool{
		"m.gguf": true, "a/b.json": true, "..a": true, "": false, ".": false, "..": false, "../a": false, "a/../b": false, "/a": false, "a//b": false,
		"a/": false, "./a": false, "a\x00b": false, "a\\b": false, "a\nb": false,
	} {
		if _, ok := clean(name); ok != want {
			t.Errorf("%q: got %v", name, ok)
		}
	}
}

func TestContentRangesAreRead(t *testing.T) {
	for v, want := range map[string]span{
		"bytes 0-0/10": {0, 1, 10}, "bytes 5-9/10": {5, 10, 10}, "bytes 0-9/*": {0, 10, -1},
		"bytes 0-10/10": {}, "bytes 9-5/10": {}, "bytes -1-5/10": {}, "bytes */10": {}, "0-5/10": {}, "": {}, "bytes 0-9223372036854775807/*": {},
		"bytes 1-2/-5": {}, "bytes a-b/c": {},
	} {
		got, err := contentRange(v)
		if got != want || (err == nil) != (want != span{}) {
			t.Errorf("%q: got %+v, %v", v, got, err)
		}
	}
}

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "-1": 0, "x": 0, "99999999999": 0,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second, now.Add(-time.Hour).Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(v, now); got != want {
			t.Errorf("%q: got %s", v, got)
		}
	}
}

func TestKeysComeBeforeThePodsIdentityAndNothingComesUnasked(t *testing.T) {
	asked := 0
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, `{"AccessKeyId":"of-the-pod","SecretAccessKey":"s","Token":"t","Expiration":"2100-01-01T00:00:00Z","Code":"Success"}`)
	}))
	defer pod.Close()
	for name, c := range map[string]struct {
		env   map[string]string
		want  string
		asked int
	}{
		"nothing":               {nil, "", 0},
		"a key without secret":  {map[string]string{"AWS_ACCESS_KEY_ID": "k"}, "", 0},
		"the pod's identity":    {map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": pod.URL}, "of-the-pod", 1},
		"keys, and an identity": {map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": pod.URL, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}, "k", 0},
	} {
		t.Run(name, func(t *testing.T) {
			asked = 0
			v, err := storeCredentials(Options{Getenv: func(k string) string { return c.env[k] }}).GetWithContext(nil)
			if err != nil || v.AccessKeyID != c.want || asked != c.asked {
				t.Errorf("got %q after %d requests, %v; want %q after %d", v.AccessKeyID, asked, err, c.want, c.asked)
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestEndpointsOfTheOperatorMayBePlainButNotPrivateUnasked(t *testing.T) {
	for v, want := range map[string]Kind{
		"": "", "http://8.8.8.8": "", "https://mirror.example/hf/": "", "http://10.0.0.1:9000": Forbidden, "http://169.254.169.254": Forbidden,
		"ftp://x.example": Forbidden, "no url": Unusable, "https://x.example?a=b": Unusable,
	} {
		_, err := endpoint(egress.Policy{}, func(string) string { return v }, "https://huggingface.co", "HF_ENDPOINT")
		var e *Error
		if want == "" && err != nil || want != "" && (!errors.As(err, &e) || e.Kind != want) {
			t.Errorf("%q: got %v, want %q", v, err, want)
		}
	}
}
