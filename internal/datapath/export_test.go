package datapath

import (
	"sync/atomic"

	"github.com/floodwall/floodwall/internal/xdp"
)

// LoadLinear loads an image whose program, also for native mode, takes only frames in one piece. Drivers refuse it on a
// device with a large MTU, as those without support for frames in pieces refuse any program there.
func LoadLinear(im *xdp.Image) (*Program, error) {
	spec, err := im.Spec()
	if err != nil {
		return nil, err
	}
	xdp.Linear(spec)
	return load(im, spec, Inherited{})
}

// Seen sets the state of all flows, and for how many seconds no packet of them has been seen.
func (f *Flows) Seen(state FlowState, ago int) {
	at := (uint64(monotonic().Seconds()) - uint64(ago)) & flowSeenMask
	for i := range f.words {
		if word := atomic.LoadUint64(&f.words[i]); word != 0 {
			atomic.StoreUint64(&f.words[i], word>>flowTagShift<<flowTagShift|uint64(state)<<flowSeenBits|at)
		}
	}
}
