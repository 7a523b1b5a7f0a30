// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

func entry(n int, left time.Duration) Record {
	r := Record{Ban: Ban{Set: "bans", Prefix: netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/32", n>>8, n&255)), Until: Never, Why: "a \"b\"\n c"}, Start: time.Now()}
	if left > 0 {
		r.Until = r.Start.Add(left)
	}
	return r
}

func all(string) bool { return true }

func loaded(t *testing.T, l *Log) (names []string) {
	t.Helper()
	list, err := l.Load(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		names = append(names, r.Prefix.String())
	}
	slices.Sort(names)
	return names
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCutAnywhere truncates the file at every byte, as a power failure may do. All lines before the cut must be readable, and also records that are
// appended afterwards.
func TestCutAnywhere(t *testing.T) {
	l := OpenLog(t.TempDir(), "/b", "/b")
	must(t, l.Append([]Record{entry(1, 0), entry(2, time.Hour), entry(3, 0)}))
	whole, err := os.ReadFile(l.file)
	must(t, err)
	first := bytes.IndexByte(whole, '\n') + 1
	for cut := first; cut <= len(whole); cut++ {
		must(t, os.WriteFile(l.file, whole[:cut], 0o600))
		lines := bytes.Count(whole[first:cut], []byte("\n"))
		if got := loaded(t, l); len(got) != lines {
			t.Fatalf("cut at %d: %v, want %d entries", cut, got, lines)
		}
		must(t, l.Append([]Record{entry(9, 0)}))
		if got := loaded(t, l); len(got) != lines+1 {
			t.Fatalf("cut at %d, and then appended to: %v, want %d entries", cut, got, lines+1)
		}
	}
}

// TestDamage changes every byte in turn. Either the file must be refused, or only the last records may be lost.
func TestDamage(t *testing.T) {
	l := OpenLog(t.TempDir(), "/b", "/b")
	must(t, l.Append([]Record{entry(1, 0), entry(2, 0)}))
	whole, err := os.ReadFile(l.file)
	must(t, err)
	last := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for at := bytes.IndexByte(whole, '\n'); at < len(whole); at++ {
		text := bytes.Clone(whole)
		text[at] ^= 0x20
		must(t, os.WriteFile(l.file, text, 0o600))
		list, err := l.Load(all)
		var damaged *DamagedError
		switch {
		case at < last-1 && !errors.As(err, &damaged):
			t.Fatalf("byte %d: %v and %v, want it refused", at, list, err)
		case at < last-1:
			must(t, os.Remove(damaged.Kept))
		case err != nil || len(list) > 1:
			t.Fatalf("byte %d of the last line: %v, %v", at, list, err)
		}
	}
}

// TestClock sets the clock forward and back between the writing and the reading of a record.
func TestClock(t *testing.T) {
	r := entry(1, time.Hour)
	for ahead, want := range map[time.Duration]time.Duration{
		0: time.Hour, 30 * time.Minute: 30 * time.Minute, 2 * time.Hour: -time.Hour, -50 * 365 * 24 * time.Hour: time.Hour,
	} {
		if got := r.Left(r.Start.Add(ahead)); got != want {
			t.Errorf("with a clock %v ahead an entry of 1h has %v left, want %v", ahead, got, want)
		}
	}
	l := OpenLog(t.TempDir(), "/b", "/b")
	must(t, l.Append([]Record{r}))
	if l.Due() {
		t.Error("the file is to be written anew at once")
	}
	text, err := os.ReadFile(l.file)
	must(t, err)
	h, why := parseHeader(text)
	if why != "" {
		t.Fatal(why)
	}
	was := h.text()
	h.offset -= 1000
	must(t, os.WriteFile(l.file, bytes.Replace(text, []byte(was), []byte(h.text()), 1), 0o600))
	if !l.Due() {
		t.Error("the clock was set, and the file stays as it is")
	}
}

// TestRewrite rewrites a file that has grown, so that it becomes small again. The file must keep the records of sets that this instance does not
// have.
func TestRewrite(t *testing.T) {
	l := OpenLog(t.TempDir(), "/b", "/b")
	other := entry(7, 0)
	other.Set = "other"
	must(t, l.Append([]Record{other}))
	appended := 0
	for !l.Due() {
		var batch []Record
		for i := range 2000 {
			r := entry(i, time.Hour)
			r.Gone = appended%2 == 1
			batch = append(batch, r)
		}
		must(t, l.Append(batch))
		appended++
	}
	if appended < 20 {
		t.Errorf("the file is to be written anew after %d batches", appended)
	}
	must(t, l.Rewrite(func(set string) bool { return set == "bans" }, slices.Values([]Record{entry(1, 0)})))
	if got := loaded(t, l); !slices.Equal(got, []string{"10.0.0.1/32", "10.0.0.7/32"}) || l.Due() {
		t.Errorf("after it was written anew: %v, due %v", got, l.Due())
	}
	must(t, l.Remove())
	if _, err := os.Stat(filepath.Dir(l.file)); err == nil {
		t.Error("its directory is left")
	}
}

// TestOthersFile opens a file or a directory that belongs to another user, or that other users can write. It must be refused.
func TestOthersFile(t *testing.T) {
	l := OpenLog(t.TempDir(), "/b", "/b")
	must(t, l.Append([]Record{entry(1, 0)}))
	for _, path := range []string{l.file, filepath.Dir(l.file)} {
		info, err := os.Stat(path)
		must(t, err)
		must(t, os.Chmod(path, 0o777))
		if _, err := l.Load(all); err == nil {
			t.Errorf("%s is open to all, and read", path)
		}
		if err := l.Append([]Record{entry(2, 0)}); err == nil {
			t.Errorf("%s is open to all, and written", path)
		}
		must(t, os.Chmod(path, info.Mode()))
	}
}

// TestFullDisk removes an entry while the disk is full. The entry must not come back.
func TestFullDisk(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	defer unix.Unmount(dir, unix.MNT_DETACH)
	l := OpenLog(dir, "/b", "/b")
	must(t, l.Append([]Record{entry(1, time.Hour), entry(2, 0), entry(3, 0)}))
	for err := error(nil); err == nil; {
		r := entry(4, 0)
		r.Why = strings.Repeat("x", 60)
		err = l.Append([]Record{r})
	}
	r := entry(2, 0)
	r.Gone = true
	if err := l.Append(slices.Repeat([]Record{r}, 100)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("with a full disk: %v", err)
	}
	if got := loaded(t, l); !slices.Equal(got, []string{"10.0.0.1/32", "10.0.0.3/32", "10.0.0.4/32"}) {
		t.Errorf("after one was removed with a full disk: %v", got)
	}
	if !OpenLog(dir, "/b", "/b").Behind() {
		t.Error("another process does not know that a change is missing")
	}
	must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=256k"))
	must(t, l.Rewrite(func(string) bool { return true }, slices.Values([]Record{entry(3, 0), entry(5, 0)})))
	if got := loaded(t, l); l.Behind() || l.Sync() != nil || !slices.Equal(got, []string{"10.0.0.3/32", "10.0.0.5/32"}) {
		t.Errorf("written whole after the disk has space again: %v", got)
	}
}
