// Package telemetry holds the names that one binary exports or sends and another reads. It decides nothing.
package telemetry

// Metrics that the bench and people's dashboards read; each binary's own set is in its package metrics.
const (
	// WorkerModelLoaded is 1 while the model is loaded.
	WorkerModelLoaded = "ringfleet_worker_model_loaded"
	// WorkerRequestsRunning and WorkerRequestsWaiting count requests now.
	WorkerRequestsRunning = "ringfleet_worker_requests_running"
	WorkerRequestsWaiting = "ringfleet_worker_requests_waiting"
	// WorkerKVBlocksUsed and WorkerKVBlocksTotal count KV-cache blocks.
	WorkerKVBlocksUsed  = "ringfleet_worker_kv_blocks_used"
	WorkerKVBlocksTotal = "ringfleet_worker_kv_blocks_total"
	// RouterTTFT is the time to first token as clients of a router see it, in seconds.
	RouterTTFT = "ringfleet_router_time_to_first_token_seconds"
	// RouterRequests counts finished requests by model and outcome.
	RouterRequests = "ringfleet_router_requests_total"
)

// Response headers of the router.
const (
	// HeaderRequestID carries the id that logs and events use; a client's own valid value is kept.
	HeaderRequestID = "X-Request-Id"
	// HeaderWorker names the pod that answered.
	HeaderWorker = "X-Ringfleet-Worker"
	// HeaderReason says why that one, in milliseconds.
	HeaderReason = "X-Ringfleet-Reason"
	// HeaderTier and HeaderTenant name the class of a request and whose it is, where an InferenceRouter trusts them.
	HeaderTier   = "X-Ringfleet-Tier"
	HeaderTenant = "X-Ringfleet-Tenant"
	// HeaderTimeout and HeaderReadTimeout are how many seconds a client waits, as OpenAI's libraries for JavaScript and for
	// Python send it.
	HeaderTimeout     = "X-Stainless-Timeout"
	HeaderReadTimeout = "X-Stainless-Read-Timeout"
	// HeaderSession is a client's name for a conversation: turns with the same value meet the same worker.
	HeaderSession = "X-Session-Id"
)
