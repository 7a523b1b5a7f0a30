package compile

import "github.com/floodwall/floodwall/internal/packet"

// Left is a check that a policy enables and a target does not do.
type Left struct {
	Check packet.Check
	Why   string // why the target cannot, and what the kernel does about such packets itself
}
