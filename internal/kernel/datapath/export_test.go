package datapath

import (
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// ForgetTCX has this process take the kernel for one without TCX.
func ForgetTCX() { hasTCX = func() bool { return false } }

// HasTCX reports whether this process uses TCX.
func HasTCX() bool { return hasTCX() }

// LoadLinear loads an image whose program, also for native mode, takes only frames in one piece. Drivers refuse it on a
// device with a large MTU, as those without support for frames in pieces refuse any program there.
func LoadLinear(im *image.Image) (*Program, error) {
	spec, err := im.Spec()
	if err != nil {
		return nil, err
	}
	image.Linear(spec)
	return load(im, spec, Inherited{})
}

// RenewPart is a Renew that dies when so many devices have the new program; with renamed, after the directories changed places.
func (s *State) RenewPart(number int, p *Program, manifest []byte, devices int, renamed bool) error {
	v, err := s.situation()
	if err != nil {
		return err
	}
	defer v.close()
	if err := os.Mkdir(s.path(renewalName(number)), 0o700); err != nil {
		return err
	}
	if err := s.furnishRenewal(number, p, manifest, nil); err != nil {
		return err
	}
	fresh := &code{number: number, dir: s.path(renewalName(number)), fresh: p, opened: map[Mode]*ebpf.Program{}}
	defer fresh.close()
	err = s.putAll(v.devices[:devices], fresh)
	if err == nil && renamed {
		err = unix.Renameat2(unix.AT_FDCWD, s.path(renewalName(number)), unix.AT_FDCWD, s.path(generationName(number)), unix.RENAME_EXCHANGE)
	}
	return err
}

// AddRecord makes a record with a manifest under the next free number, without the rest of an Install. The caller holds the lock.
func (s *State) AddRecord(manifest []byte) (number int, err error) {
	incomplete := func(n int) bool { return !s.has(n, pinManifest) }
	if err := s.sweepIf(incomplete); err != nil {
		return 0, err
	}
	return s.pinGeneration(nil, manifest, 0)
}
