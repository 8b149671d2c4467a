// Package docs tests that the documentation says what is there: every reason, event and error code is explained, every
// make target and link exists. It reads source and text, and judges neither wording nor truth.
package docs
