package dirlock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLock has a second one wait for the first, in vain and then not.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	there := func() error { return nil }
	unlock, err := Lock(t.Context(), dir, there)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 3*again)
	defer cancel()
	if _, err := Lock(short, dir, there); !errors.Is(err, ErrTaken) {
		t.Errorf("a lock that another has: %v, want %v", err, ErrTaken)
	}
	time.AfterFunc(2*again, unlock)
	second, err := Lock(t.Context(), dir, there)
	if err != nil {
		t.Fatalf("a lock that was given up: %v", err)
	}
	second()
}

// TestRemoved has the directory be removed and made anew by who has the lock: the next one must lock the new one.
func TestRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	tries := 0
	prepare := func() error {
		tries++
		return os.MkdirAll(dir, 0o700)
	}
	unlock, err := Lock(t.Context(), dir, prepare)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	second, err := Lock(t.Context(), dir, prepare)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	short, cancel := context.WithTimeout(t.Context(), 3*again)
	defer cancel()
	if _, err := Lock(short, dir, prepare); !errors.Is(err, ErrTaken) {
		t.Errorf("%v, want %v: the second one has the lock of what is there now", err, ErrTaken)
	}
	second()
	gone := errors.New("nothing is there")
	if _, err := Lock(t.Context(), dir, func() error { return gone }); !errors.Is(err, gone) || tries < 3 {
		t.Errorf("%v after %d tries, want %v", err, tries, gone)
	}
}
