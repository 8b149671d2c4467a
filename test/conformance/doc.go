// Package conformance runs the suite of package enginetest against real engines: the worker's own scheduler on llama.cpp's
// library, and, with the build tag conformance, vLLM and llama-server as processes of their own. It decides what each is
// asked, and writes the table that docs/engines.md holds. What an engine has to do is enginetest's decision.
package conformance
