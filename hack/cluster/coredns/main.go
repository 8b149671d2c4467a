// Command coredns is the cluster's DNS server: CoreDNS with the few plugins that its Corefile names. It
// decides nothing itself.
package main

import (
	_ "github.com/coredns/coredns/core/dnsserver" // the server and the order of plugins
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() { coremain.Run() }
