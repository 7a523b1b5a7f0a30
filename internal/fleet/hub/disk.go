package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// How much of the disk a hub uses, in MB (10^6 bytes).
const (
	DefaultDisk    = 600  // of a fleet that is made now
	undeclaredDisk = 1536 // of fleets whose hub.json does not say it
	LeastDisk      = 48
)

const megabyte = 1_000_000

// recordSize is how many bytes of the stream one prefix may take on average. A ban with a reason, of one node, takes about 200.
const recordSize = 512

// space is what the caps of a fleet need on the disk of each hub, in bytes.
type space struct {
	all      int64 // with what the store has not given back yet
	bans     int64 // the largest size of each stream
	policies int64
	prefixes int // how many may be banned at a time
	ofNode   int // how many of them one node may ban
}

// space divides the disk. Records that were replaced stay on the disk until they are as many as those that count, so the bans need twice their
// size; with other hubs also a log of writes.
func (c *Config) space() (s space) {
	s.all = int64(c.DiskMB) * megabyte
	if c.DiskMB == 0 {
		s.all = undeclaredDisk * megabyte
	}
	times := int64(2)
	if len(c.Hubs) > 1 {
		times = 3
	}
	s.policies = min(s.all/4, maxPolicies)
	s.bans = (s.all - s.policies - max(s.all/16, 4*fullBelow)) / times
	s.prefixes = min(maxPrefixes, int(s.bans/recordSize))
	s.ofNode = min(maxOfNode, s.prefixes/2)
	return s
}

// Holds says what the disk of a hub suffices for: how many prefixes may be banned at a time, and how large a policy with its files may be.
func (c *Config) Holds() (prefixes int, policy int64) {
	s := c.space()
	return s.prefixes, s.policies / 2
}

// checkDisk makes sure before a hub starts that its disk has space for all that the hub may have to keep. A hub that has kept something
// starts with less: its nodes need it.
func (c *Config) checkDisk(log func(string)) error {
	if c.DiskMB != 0 && c.DiskMB < LeastDisk {
		return wording.Hinted(fmt.Sprintf("%s: disk_mb is %d, and a hub needs %d at least", filepath.Join(c.dir, configFile), c.DiskMB, LeastDisk),
			fmt.Sprintf("write %d or more, in the file of each hub of the fleet", LeastDisk))
	}
	free, err := freeBytes(c.store())
	if err != nil {
		return fmt.Errorf("disk of %s: %w", c.dir, err)
	}
	s := c.space()
	has := free + used(filepath.Join(c.dir, storeDir))
	if has >= s.all {
		return nil
	}
	hint := fmt.Sprintf("make space there: a hub needs %d MB at least", LeastDisk)
	if most := has / megabyte; most >= LeastDisk {
		less := *c
		less.DiskMB = int(most)
		hint = fmt.Sprintf("make space there, or write \"disk_mb\": %d to %s of each hub of the fleet: this suffices for %d banned prefixes",
			most, configFile, less.space().prefixes)
	}
	problem := fmt.Sprintf("the disk of %s has %d MB for the hub, which needs %d MB for %d banned prefixes and for policies",
		c.dir, has/megabyte, s.all/megabyte, s.prefixes)
	if c.store() != c.dir {
		log(problem + ": " + hint)
		return nil
	}
	return wording.Hinted(problem, hint)
}

// store is the directory on whose disk the hub keeps what it knows.
func (c *Config) store() string {
	path := filepath.Join(c.dir, storeDir)
	if _, err := os.Stat(path); err != nil {
		return c.dir
	}
	return path
}

// freeBytes is how much of the disk of a directory a process without rights may still use.
func freeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// used is how much of its disk the files of a directory take.
func used(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what has gone takes nothing
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// How often the disk is looked at, below how many free bytes it counts as full, and from how many it has space again.
const (
	diskLook  = time.Second
	fullBelow = 1 << 20
	spaceFrom = 2 << 20
)

// brokenAfter is for how long no write may arrive at a store that nobody shares, before the store is opened anew.
const brokenAfter = 2 * ackWait

// store is the state of what the hub writes to.
type store struct {
	mu      sync.Mutex
	full    string    // why nothing can be written now; "": the disk has space
	hit     bool      // a write may have failed as the disk was full: the server then takes none until it is started again
	failing time.Time // since when no write arrives; zero: the last one did
	broken  chan struct{}
	once    sync.Once
}

// writable tells why nothing can be written now.
func (s *store) writable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full != "" {
		return errors.New(s.full)
	}
	return nil
}

// wrote notes whether writes have arrived.
func (s *store) wrote(kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case kept:
		s.failing = time.Time{}
	case s.failing.IsZero():
		s.failing = time.Now()
	}
}

// suspect tells whether writes have not arrived lately.
func (s *store) suspect() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.failing.IsZero()
}

// look takes how much space there is. It returns what is to be told, "" for nothing.
func (s *store) look(dir string, free int64) (told string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.full == "" && free < fullBelow:
		s.full = fmt.Sprintf("the disk of %s is full: nothing is taken until there is space", dir)
		told = s.full
	case s.full != "" && free >= spaceFrom:
		s.full = ""
		told = fmt.Sprintf("the disk of %s has space again", dir)
	}
	s.hit = s.hit || free < fullBelow/8 || s.full != "" && !s.failing.IsZero()
	return told
}

// isBroken tells why the server is to be started again: a store that has met a full disk takes nothing more. alone: no other hub is needed to write.
func (s *store) isBroken(alone, disabled bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.full != "":
		return ""
	case disabled:
		return "the store of the hub has closed itself after an error of the disk"
	case s.hit:
		return "the disk was full while the hub ran"
	case alone && !s.failing.IsZero() && time.Since(s.failing) > brokenAfter:
		return fmt.Sprintf("no write has arrived at the store for %v", brokenAfter)
	}
	return ""
}

// watchDisk looks at the disk until ctx ends, or the hub must be started again. Then it says so by h.store.broken.
func (h *Hub) watchDisk(ctx context.Context) {
	tick := time.NewTicker(diskLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if free, err := freeBytes(h.config.store()); err == nil {
			if told := h.store.look(h.config.dir, free); told != "" {
				h.log(told)
			}
		}
		if why := h.store.isBroken(len(h.config.Hubs) < 2, !h.server.JetStreamEnabled()); why != "" {
			h.log(why + ": it is opened again")
			h.store.once.Do(func() { close(h.store.broken) })
			return
		}
	}
}

// againWait is how long a hub waits before it is started again after that has failed.
const againWait = time.Second

// restart starts a hub again, and tries until that is possible. It is nil when ctx ends.
func restart(ctx context.Context, c *Config, log func(string)) *Hub {
	for told := ""; ; {
		h, err := start(ctx, c, log)
		if err == nil {
			log(fmt.Sprintf("hub %s serves nodes again", c.Name))
			return h
		}
		if ctx.Err() != nil {
			return nil
		}
		if text := err.Error(); text != told {
			told = text
			log("the hub cannot be started again yet: " + text)
		}
		if !periodic.Sleep(ctx, againWait) {
			return nil
		}
	}
}
