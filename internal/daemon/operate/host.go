// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/internal/sources/geo"
)

// Host is an instance on this host, with the directory of the state that survives a reboot.
type Host struct {
	control.Instance
	Warn func(error) // called with errors that do not stop an action
	Tap  *sample.Tap // samples of the traffic from XDP, in the daemon; nil in other processes

	costs   *costFile
	finder  *geo.Finder       // looks up countries and autonomous systems; nil: no lookups
	listens *exposed.Follower // remembers the last comparison
}

// NewHost returns the instance of a directory in the BPF file system.
func NewHost(bpffs, state string, warn func(error)) Host {
	return Host{
		Instance: control.Instance{Dir: bpffs, State: state, Bans: ban.OpenLog(state, bpffs, datapath.DefaultDir), Feeds: feed.InState(state)},
		Warn:     warn, costs: new(costFile), finder: new(geo.Finder), listens: new(exposed.Follower),
	}
}

// costFile is the cost model as it was last read.
type costFile struct {
	mu      sync.Mutex
	changed time.Time // when the file was written
	model   *cost.Model
}

// Costs returns the cost model of this host, nil when there is none. If the model cannot be used, Costs warns once, and again when the file has
// changed.
func (h Host) Costs() *cost.Model {
	c := h.costs
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(cost.Path(h.State))
	if err != nil {
		c.changed, c.model = time.Time{}, nil
		return nil
	}
	if !info.ModTime().Equal(c.changed) {
		c.changed = info.ModTime()
		if c.model, err = readCosts(h.State); err != nil {
			h.Warn(err)
		}
	}
	return c.model
}

// readCosts reads the cost model of this host. It is nil when there is none.
func readCosts(state string) (*cost.Model, error) {
	host, err := cost.ThisHost()
	if err != nil {
		return nil, err
	}
	m, err := cost.Read(state, host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return m, err
}

// Status returns the running policy, its counters, the placement of its rules, and the ports for which it differs from what listens. It returns
// datapath.ErrNotLoaded when no policy runs.
func (h Host) Status(ctx context.Context) (*control.Status, error) {
	s, err := h.Instance.Status(ctx)
	if err == nil {
		s.Placement, err = h.Placement(ctx, h.Costs())
	}
	if err != nil {
		return nil, err
	}
	if s.Openings != nil {
		s.Ports = h.listens.Ports(ctx, s.Openings, deviceNames(s))
	}
	return s, nil
}
