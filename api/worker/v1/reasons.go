// Package workerv1 is the contract between routers and workers, generated from worker.proto, with the words in it that protobuf
// has no place for. It decides nothing.
package workerv1

// ReasonEngineLost is the reason, in a google.rpc.ErrorInfo, of an UNAVAILABLE that says: the engine beside the worker was
// lost at work on the request, whether or not a response came before.
const ReasonEngineLost = "ENGINE_LOST"
