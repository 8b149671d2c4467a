package stage

import (
	"fmt"
	"strings"
)

// Next is what a user may type after the demo. bin is the folder of our programs; forward is the command that
// url needs to work, "" if none.
func Next(bin, kubeconfig, url, model, forward string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe model answers. Type next:\n\n")
	fmt.Fprintf(&b, "  export KUBECONFIG=%s PATH=%s:$PATH\n", kubeconfig, strings.TrimRight(bin, "/"))
	fmt.Fprintf(&b, "  kubectl get inferencemodel,workerpool,inferencerouter,pods\n")
	fmt.Fprintf(&b, "  kubectl ringfleet status %s\n", Model)
	fmt.Fprintf(&b, "  kubectl ringfleet chat %s\n\n", Model)
	if forward != "" {
		fmt.Fprintf(&b, "  %s &\n", forward)
	}
	fmt.Fprintf(&b, "  curl -N %s/chat/completions -H 'Content-Type: application/json' \\\n", url)
	fmt.Fprintf(&b, "    -d '{\"model\":\"%s\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}]}'\n\n", model)
	fmt.Fprintf(&b, "  # Python: pip install openai\n")
	fmt.Fprintf(&b, "  from openai import OpenAI\n")
	fmt.Fprintf(&b, "  client = OpenAI(base_url=\"%s\", api_key=\"none\")\n", url)
	fmt.Fprintf(&b, "  print(client.chat.completions.create(model=\"%s\",\n", model)
	fmt.Fprintf(&b, "      messages=[{\"role\": \"user\", \"content\": \"Hello!\"}]).choices[0].message.content)\n\n")
	fmt.Fprintf(&b, "  make demo-down    # removes the cluster\n")
	return b.String()
}
