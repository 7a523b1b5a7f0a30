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
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/internal/sources/geo"
)

// Host is an instance on this host, with the directory of what is kept over a reboot.
type Host struct {
	control.Instance
	Warn func(error) // is told what does not keep an action from being done
	Tap  *sample.Tap // samples of the traffic from XDP, in the daemon; nil elsewhere

	costs  *costFile
	finder *geo.Finder // of countries and autonomous systems; nil: none are looked up
}

// NewHost is the instance of a directory in the BPF file system.
func NewHost(bpffs, state string, warn func(error)) Host {
	return Host{
		Instance: control.Instance{Dir: bpffs, State: state, Bans: ban.OpenLog(state, bpffs, datapath.DefaultDir), Feeds: feed.InState(state)},
		Warn:     warn, costs: new(costFile), finder: new(geo.Finder),
	}
}

// costFile is the cost model as it was read last.
type costFile struct {
	mu      sync.Mutex
	changed time.Time // when the file was written
	model   *cost.Model
}

// Costs is the cost model of this host, nil when there is none. A model that cannot be used is warned of once, until its file
// changes.
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

// Status is what runs, and how its rules were placed. It returns datapath.ErrNotLoaded when nothing runs.
func (h Host) Status(ctx context.Context) (*control.Status, error) {
	s, err := h.Instance.Status(ctx)
	if err == nil {
		s.Placement, err = h.Placement(ctx, h.Costs())
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}
