package workerv1

// ReasonEngineLost is the reason, in a google.rpc.ErrorInfo, of an UNAVAILABLE that says: the engine beside the worker was
// lost at work on the request, whether or not a response came before.
const ReasonEngineLost = "ENGINE_LOST"
