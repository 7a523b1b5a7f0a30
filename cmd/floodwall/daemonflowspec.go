package main

import (
	bgpreceive "github.com/floodwall/floodwall/internal/bgp/receive"
	bgp "github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/daemon"
	"github.com/floodwall/floodwall/internal/operate"
)

// newReceiver obeys the FlowSpec routes that `floodwall bgp` has received.
func newReceiver(h operate.Host, dir string, report func(daemon.Event)) *bgpreceive.Receiver {
	return &bgpreceive.Receiver{Rules: h.Instance, Routes: bgp.NewClient(dir), Report: func(text string, err error) { report(daemon.Event{Text: text, Err: err}) }}
}
