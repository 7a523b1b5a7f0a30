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

// How long Wait waits: after a change for more of them, and for a change that the kernel does not tell of.
const (
	gather  = 20 * time.Millisecond
	poll    = 100 * time.Millisecond
	longest = 5 * time.Second
)

// watched are the events of inotify(7) that a change of the file, or of its name, makes.
const watched = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO

// Wait returns when Next may have something new, after 5 s at most, and when ctx ends. The kernel tells of changes. Where it does not, as
// when this user has too many inotify instances, Wait returns after 100 ms.
func (f *Follower) Wait(ctx context.Context) {
	if f.events == nil {
		if f.watch() != nil {
			periodic.Sleep(ctx, poll)
		}
		return // what changed before the watch is read now
	}
	defer context.AfterFunc(ctx, func() { f.events.SetReadDeadline(time.Now()) })()
	f.events.SetReadDeadline(time.Now().Add(periodic.Left(longest)))
	_, err := f.events.Read(make([]byte, 4096))
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

// watch watches the directory of the file, or the one above while it is not there.
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
			// The directory may have been made between the two calls: then neither watch tells of the file.
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
