// Command echo is the program of the cluster tool's test pods. `echo serve` answers on port 8080: / with the
// host's name, /get?url=URL with what URL answers, /file?path=PATH with a file. `echo get URL` asks once.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		if _, err := fmt.Fprintln(os.Stdout, "serving"); err != nil {
			return err
		}
		s := http.Server{Addr: ":8080", Handler: handler(), ReadHeaderTimeout: 5 * time.Second}
		return s.ListenAndServe()
	case len(args) == 2 && args[0] == "get":
		text, err := get(args[1])
		if err == nil {
			_, err = os.Stdout.Write(text)
		}
		return err
	}
	return fmt.Errorf("want serve, or get URL; got %q", args)
}

func handler() http.Handler {
	answer := func(w http.ResponseWriter, text []byte, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if _, err := w.Write(text); err != nil {
			fmt.Fprintln(os.Stderr, "echo: write the answer:", err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		name, err := os.Hostname()
		answer(w, []byte(name), err)
	})
	mux.HandleFunc("GET /get", func(w http.ResponseWriter, r *http.Request) {
		text, err := get(r.URL.Query().Get("url"))
		answer(w, text, err)
	})
	mux.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) {
		text, err := os.ReadFile(r.URL.Query().Get("path"))
		answer(w, text, err)
	})
	return mux
}

func get(url string) ([]byte, error) {
	c := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, resp.Status, text)
	}
	return text, err
}
