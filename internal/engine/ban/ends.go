package ban

import (
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/host/facts"
)

// WriteEnds says in the memory of the map image.HostEnds what this host has and answers to by these devices. Without memory it does nothing: the
// program answers nobody.
func WriteEnds(memory []byte, devices []string) (err error) {
	if memory == nil {
		return nil
	}
	var e image.Ends
	if e.MACs, err = facts.MACs(devices); err != nil {
		return err
	}
	if e.Own, err = facts.LocalPrefixes(); err != nil {
		return err
	}
	if e.Broadcasts, err = facts.Broadcasts(); err != nil {
		return err
	}
	e.Write(memory)
	return nil
}
