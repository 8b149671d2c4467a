package kubeapi

import (
	"context"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/hack/cluster/pki"
)

func TestWhichNodesAreReady(t *testing.T) {
	got, err := parseNodes([]byte(`{"items":[
		{"metadata":{"name":"a"},"status":{"conditions":[{"type":"DiskPressure","status":"False"},{"type":"Ready","status":"True"}]}},
		{"metadata":{"name":"b"},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}},
		{"metadata":{"name":"c"},"status":{}}]}`))
	if want := map[string]bool{"a": true, "b": false, "c": false}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseNodes([]byte("<html>")); err == nil {
		t.Error("no error for what is no JSON")
	}
}

func TestAnAnswerOtherThan200IsAnError(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			_, _ = w.Write([]byte("ok")) // the client sees whether it came
			return
		}
		http.Error(w, "not yet", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	a, err := pki.NewAuthority(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	me, err := a.Issue(pki.Admin(), time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c, err := New(server.URL, ca, me.Cert, me.Key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(context.Background(), "/readyz"); err != nil || string(got) != "ok" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := c.Get(context.Background(), "/api/v1/nodes"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("got %v", err)
	}
	if _, err := New(server.URL, []byte("x"), me.Cert, me.Key); err == nil {
		t.Error("an authority that is none is accepted")
	}
}
