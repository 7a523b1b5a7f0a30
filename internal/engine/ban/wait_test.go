// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestWait follows a file in a directory, neither of which exists yet. Each change must wake the follower, also after the file was rewritten. The end
// of the context must wake it. Nothing else may wake it.
func TestWait(t *testing.T) {
	l := OpenLog(t.TempDir(), "/sys/fs/bpf/other", "")
	f := l.Follow()
	defer f.Close()
	f.longest = time.Hour // so that only an event can wake it in time, however busy the machine is
	ctx, cancel := context.WithCancel(t.Context())
	woken := make(chan []Record, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			list, _, err := f.Next()
			if err != nil {
				t.Error(err)
				return
			}
			woken <- list
			if len(list) == 0 {
				f.Wait(ctx)
			}
		}
	}()
	next := func(what string, prefix netip.Prefix) {
		t.Helper()
		for end := time.After(time.Minute); ; {
			select {
			case list := <-woken:
				for _, r := range list {
					if r.Prefix == prefix {
						return
					}
				}
			case <-end:
				t.Fatalf("%s: the follower is not woken", what)
			}
		}
	}
	add := func(text string) netip.Prefix {
		t.Helper()
		p := netip.MustParsePrefix(text)
		if err := l.Append([]Record{{Ban: Ban{Set: "bans", Prefix: p, Until: time.Now().Add(time.Hour)}, Start: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		return p
	}
	next("the first ban", add("192.0.2.1/32"))
	next("another ban", add("192.0.2.2/32"))
	named := filepath.Join(t.TempDir(), "new")
	text, err := os.ReadFile(l.file)
	if err == nil {
		err = os.WriteFile(named, text, 0o600)
	}
	if err == nil {
		err = os.Rename(named, l.file)
	}
	if err != nil {
		t.Fatal(err)
	}
	next("a ban after the file was written anew", add("192.0.2.3/32"))
	begin := time.Now()
	cancel()
	<-ended
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it ends %v after the context", took)
	}
}

// TestWaitForDirectory creates the directory while the follower starts to watch, each time at a different moment. The follower must notice a file
// that is created later, by the watch of the directory or of its parent.
func TestWaitForDirectory(t *testing.T) {
	base := t.TempDir()
	for i := range 300 {
		l := &Log{file: filepath.Join(base, strconv.Itoa(i), "bans", "bans")}
		if err := os.Mkdir(filepath.Join(base, strconv.Itoa(i)), 0o700); err != nil {
			t.Fatal(err)
		}
		f := l.Follow()
		start, made := make(chan bool), make(chan error)
		go func() {
			<-start
			for range i % 60 {
				os.Getppid() // a delay
			}
			made <- os.Mkdir(filepath.Dir(l.file), 0o700)
		}()
		close(start)
		err := f.watch()
		if err := errors.Join(err, <-made, os.WriteFile(l.file, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		f.events.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := f.events.Read(make([]byte, 4096)); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		f.Close()
	}
}
