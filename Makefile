# Ringfleet. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VERSION ?= $(shell sed -n 's/^appVersion: //p' charts/ringfleet/Chart.yaml)
TOOL := go tool -modfile=hack/tools.mod
# Packages whose tests need neither an API server nor a cluster.
UNIT = $(shell go list ./... | grep -vE '/test/(env|e2e|crd|chart)($$|/)')
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Source

.PHONY: generate
generate: ## Write the generated Go code: contracts, deep copies, apply configurations.
	go run ./hack/protogen
	$(TOOL) controller-gen object applyconfiguration paths=./api/v1alpha1

.PHONY: manifests
manifests: ## Write the CRDs, roles, the chart's copies of both, and the API reference.
	$(TOOL) controller-gen crd:maxDescLen=1000 paths=./api/v1alpha1 output:crd:dir=./api/crd
	$(TOOL) controller-gen rbac:roleName=ringfleet-manager paths=./controllers/... output:rbac:dir=./config/rbac
	go run ./hack/manifests
	$(TOOL) crd-ref-docs --source-path=api/v1alpha1 --config=hack/apidocs.yaml --renderer=markdown --output-path=docs/api.md

.PHONY: verify
verify: ## Fail when generated files or go.mod are not fresh.
	@before=$$(git status --porcelain; git diff); \
	$(MAKE) --no-print-directory generate manifests; go mod tidy; gofmt -l $$(git ls-files '*.go') | (! grep .); \
	after=$$(git status --porcelain; git diff); \
	if [ "$$before" != "$$after" ]; then echo "verify: these were not fresh; commit what make generate manifests and go mod tidy wrote:"; git status --short; git diff --stat; exit 1; fi; \
	echo "verify: generated files and go.mod are fresh"

.PHONY: lint
lint: ## Run golangci-lint with kube-api-linter's rules, helm lint and go vet of the e2e tests.
	$(TOOL) golangci-lint-kube-api-linter run ./...
	$(TOOL) helm lint charts/ringfleet --quiet

##@ Build

.PHONY: build
build: ## Build manager, router, worker and kubectl-ringfleet into bin/.
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/manager ./controllers
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/router ./router
	CGO_ENABLED=1 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/worker ./worker
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/kubectl-ringfleet ./cli

.PHONY: images
images: deps ## Build the OCI images of manager, router and worker, and of the demo model, into bin/images.
	go run ./hack/image build all -o bin/images

##@ Tests

.PHONY: deps
deps: ## Install what the build and the tests need and the machine lacks (a C compiler, git).
	@command -v gcc >/dev/null || { echo "deps: installing gcc (the race detector and the worker need it)"; apt-get update -q && apt-get install -y -q gcc libc6-dev; }

PARTS := verify lint unit crd envtest e2e

.PHONY: test
test: deps ## Everything: verify, lint, unit, CRD, API server and cluster tests, with the time of each.
	@for part in $(PARTS); do start=$$SECONDS; echo "== $$part"; $(MAKE) --no-print-directory $$part; echo "== $$part took $$((SECONDS - start)) s"; done

.PHONY: unit
unit: deps ## Run the unit and transcript tests with the race detector.
	export RINGFLEET_TEST_LIBS=$$(go run ./hack/image libs) RINGFLEET_TEST_WEIGHTS=$$(go run ./hack/image weights) \
		RINGFLEET_TEST_S3=$$(go tool -modfile=hack/s3.mod -n versitygw); \
	GORACE=atexit_sleep_ms=20 go test -race -timeout 15m $(UNIT)

.PHONY: fuzz
fuzz: deps ## Run every fuzz target for a minute, one after the other (FUZZTIME=10m, ONLY=FuzzRing, PARALLEL=1).
	@export RINGFLEET_TEST_LIBS=$$(go run ./hack/image libs) RINGFLEET_TEST_WEIGHTS=$$(go run ./hack/image weights); \
	go run ./hack/fuzz --time '$(or $(FUZZTIME),60s)' --only '$(ONLY)' $(if $(PARALLEL),--parallel $(PARALLEL))

.PHONY: crd
crd: ## Run the tests of the CRDs and of the chart, without a server.
	go test ./test/crd/... ./test/chart/...

.PHONY: envtest
envtest: deps ## Run the controllers against a real API server.
	go run ./hack/cluster build
	export KUBEBUILDER_ASSETS=$$(go run ./hack/cluster assets); go test -race -timeout 15m ./test/env/...

.PHONY: e2e
e2e: deps ## Run the whole line on a cluster of its own, and the tests of the cluster tool on another.
	go run ./hack/demo e2e
	go test -tags=e2e -v -count=1 -timeout=15m ./hack/cluster/e2e

.PHONY: conformance
conformance: deps ## Hold llama.cpp in the worker, vLLM and llama-server to one contract, and run the latter on the cluster (installs both: 7 GB, 15 minutes once).
	libs=$$(go run ./hack/image libs); weights=$$(go run ./hack/image weights); \
	vllm=$$(go run ./hack/engines vllm); llama=$$(go run ./hack/engines llama-server); \
	RINGFLEET_TEST_LIBS=$$libs RINGFLEET_TEST_WEIGHTS=$$weights RINGFLEET_TEST_VLLM=$$vllm RINGFLEET_TEST_LLAMA_SERVER=$$llama \
	go test -tags=conformance -v -count=1 -timeout=60m ./test/conformance $(if $(UPDATE),-update) && \
	RINGFLEET_TEST_LLAMA_SERVER=$$llama go run ./hack/demo with -- go test -tags=e2e,engines -v -count=1 -timeout=15m -run TestAnEngineInAContainerOfItsOwn ./test/e2e

.PHONY: bench
bench: deps ## Measure, and write bench/out/*.json, *.md and *.svg.
	go run ./hack/demo bench

.PHONY: bench-worker
bench-worker: deps ## Measure the worker beside llama.cpp's own programs, and write bench/out/worker.* (QUICK=1, UPDATE=1: docs).
	go run ./test/bench/worker/cmd $(if $(QUICK),--quick) $(if $(UPDATE),--update)

.PHONY: bench-router
bench-router: deps ## Measure the router beside Envoy and vLLM's router, and write bench/out/router.* (QUICK=1, UPDATE=1: docs).
	@mkdir -p bin && go build -o bin/bench-router ./test/bench/router/cmd
	bin/bench-router $(if $(QUICK),--quick) $(if $(UPDATE),--update)

.PHONY: bench-placement
bench-placement: ## Replay a trace on a virtual clock, placed by the router and by its peers' rules, and write bench/out/placement.* (TRACE=FILE, UPDATE=1: docs).
	go run ./test/bench/placement/cmd --trace '$(TRACE)' $(if $(UPDATE),--update)

.PHONY: bench-faults
bench-faults: deps ## Break workers, routers and clients on purpose, and write bench/out/faults.* (QUICK=1, ONLY=F03,F12, UPDATE=1: docs).
	@mkdir -p bin && go build -o bin/bench-faults ./test/bench/faults/cmd
	bin/bench-faults $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) $(if $(UPDATE),--update)

##@ Cluster

.PHONY: cluster
cluster: deps ## Bring up the local cluster alone (down: go run ./hack/cluster down).
	go run ./hack/cluster up

.PHONY: demo
demo: deps ## Bring up a cluster with a model that answers.
	@echo "demo: compiling the program that does it"
	@(while sleep 20; do echo "demo: still compiling it (on a new machine this takes a minute or two)"; done) & t=$$!; trap "kill $$t" EXIT; \
	go build -buildvcs=false -o bin/demo ./hack/demo
	@bin/demo up

.PHONY: demo-down
demo-down: ## Remove the demo's cluster.
	go run ./hack/demo down
