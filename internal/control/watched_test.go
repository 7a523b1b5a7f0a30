package control

import (
	"errors"
	"os"
	"testing"
)

// TestListen takes the place of the one that watches, is asked more often than a queue of connections is long, and gives it
// back.
func TestListen(t *testing.T) {
	in := Instance{Dir: t.TempDir()}
	if in.watched() {
		t.Error("it is watched before")
	}
	alone, err := in.listen()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6000 { // /proc/sys/net/core/somaxconn is 4096
		if !in.watched() {
			t.Fatalf("it is not watched when asked the %dth time", i+1)
		}
	}
	var held *WatchedError
	if _, err := in.listen(); !errors.As(err, &held) || held.Process != os.Getpid() {
		t.Errorf("a second one: %v, want that process %d holds it", err, os.Getpid())
	}
	other := Instance{Dir: t.TempDir()}
	if other.watched() {
		t.Error("another instance is watched")
	}
	alone.Close()
	if in.watched() {
		t.Error("it is watched after the end")
	}
}
