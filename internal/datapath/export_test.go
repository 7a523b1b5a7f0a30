package datapath

import "github.com/floodwall/floodwall/internal/xdp"

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
