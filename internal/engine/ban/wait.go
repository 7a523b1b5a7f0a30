// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/periodic"
)

// Times that Wait waits: gather, after a change, for further changes; poll, if inotify is not available; longest, because inotify may miss a change.
const (
	gather  = 20 * time.Millisecond
	poll    = 100 * time.Millisecond
	longest = 5 * time.Second
)

// watched are the inotify(7) events that occur when the file is changed or replaced.
const watched = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO

// Wait returns when Next may have new changes, after 5 s at the latest, or when ctx ends. It uses inotify. If inotify is not available, for example
// because this user has too many inotify instances, Wait returns after 100 ms.
func (f *Follower) Wait(ctx context.Context) {
	if f.events == nil {
		if f.watch() != nil {
			periodic.Sleep(ctx, poll)
		}
		return // Next reads the changes from before the watch
	}
	events := f.events
	events.SetReadDeadline(time.Now().Add(periodic.Left(f.longest)))
	defer context.AfterFunc(ctx, func() { events.SetReadDeadline(time.Now()) })() // last, so that this deadline holds if ctx ends just now
	_, err := events.Read(make([]byte, 4096))
	switch {
	case err == nil:
		periodic.Sleep(ctx, gather)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return
	}
	if err != nil || f.above {
		f.unwatch()
	}
}

// watch watches the directory of the file, or its parent while the directory does not exist.
func (f *Follower) watch() error {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.log.file)
	f.above = false
	_, err = unix.InotifyAddWatch(fd, dir, watched)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = unix.InotifyAddWatch(fd, filepath.Dir(dir), watched); err == nil {
			// The directory may have been created between the two calls. Then neither watch reports the file.
			_, missing := unix.InotifyAddWatch(fd, dir, watched)
			f.above = missing != nil
		}
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	f.events = os.NewFile(uintptr(fd), "inotify")
	return nil
}

func (f *Follower) unwatch() {
	if f.events != nil {
		f.events.Close()
		f.events = nil
	}
}
