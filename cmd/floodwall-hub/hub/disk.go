// SPDX-License-Identifier: Apache-2.0

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

// The part of the disk that a hub uses, in MB (10^6 bytes).
const (
	DefaultDisk    = 600  // of new fleets
	undeclaredDisk = 1536 // of fleets whose hub.json does not set it
	LeastDisk      = 48
)

const megabyte = 1_000_000

// recordSize is the average size of a prefix's record in the stream, in bytes. The record of a ban by one node with a reason has about 200.
const recordSize = 512

// space is the disk space in bytes that each hub of a fleet needs for its limits.
type space struct {
	all      int64 // including space that the store has not freed yet
	bans     int64 // the largest size of each stream
	policies int64
	prefixes int // prefixes that may be banned at the same time
	ofNode   int // prefixes that one node may ban
}

// space divides the disk. Replaced records stay on the disk until there are as many replaced records as current ones, so bans need twice the size of
// the current records. With other hubs, bans also need a write-ahead log.
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

// Holds returns the limits that follow from the disk of a hub: how many prefixes may be banned at the same time, and how large a policy with its
// files may be.
func (c *Config) Holds() (prefixes int, policy int64) {
	s := c.space()
	return s.prefixes, s.policies / 2
}

// checkDisk checks before a hub starts that its disk has space for all of its limits. A hub that already has data may start with less space, because
// its nodes need the hub.
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

// store returns the directory on whose disk the hub stores its data.
func (c *Config) store() string {
	path := filepath.Join(c.dir, storeDir)
	if _, err := os.Stat(path); err != nil {
		return c.dir
	}
	return path
}

// freeBytes returns the free space of a disk that an unprivileged process may use.
func freeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// used returns the disk space of the files in a directory.
func used(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a removed file takes no space
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// How often the disk is checked, the free bytes below which it counts as full, and the free bytes from which on it has space again.
const (
	diskLook  = time.Second
	fullBelow = 1 << 20
	spaceFrom = 2 << 20
)

// brokenAfter is how long all writes to a store of a single hub may fail before the store is opened again.
const brokenAfter = 2 * ackWait

// store is the state of the hub's store.
type store struct {
	mu      sync.Mutex
	full    string    // why no writes are possible now; "": the disk has space
	hit     bool      // a write may have failed because the disk was full; the server then fails all writes until it is restarted
	failing time.Time // since when all writes have failed; zero: the last write succeeded
	broken  chan struct{}
	once    sync.Once
}

// writable returns the reason why no writes are possible now, or nil when they are possible.
func (s *store) writable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full != "" {
		return errors.New(s.full)
	}
	return nil
}

// wrote records whether writes succeeded.
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

// suspect reports whether recent writes have failed.
func (s *store) suspect() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.failing.IsZero()
}

// look updates the state with the free space of the disk. It returns a message to log, or "".
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

// isBroken returns why the server must be restarted, or "". The reason is that after a full disk a store fails all writes. alone means that writes
// need no other hub.
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

// watchDisk checks the disk until ctx ends, or until the hub must be restarted. Then it closes h.store.broken.
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

// againWait is how long a hub waits between two attempts to restart.
const againWait = time.Second

// restart starts a hub again, and tries until it succeeds. It returns nil when ctx ends.
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
