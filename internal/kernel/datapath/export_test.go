// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// ForgetTCX makes this process behave as on a kernel without TCX.
func ForgetTCX() { hasTCX = func() bool { return false } }

// HasTCX reports whether this process uses TCX.
func HasTCX() bool { return hasTCX() }

// LoadLinear loads an image whose native program also accepts only frames in one buffer. On a device with a large MTU, drivers refuse such a program.
// Drivers without support for several buffers refuse every program on such a device.
func LoadLinear(im *image.Image) (*Program, error) {
	spec, err := im.Spec()
	if err != nil {
		return nil, err
	}
	image.Linear(spec)
	return load(im, spec, Inherited{})
}

// RenewPart is a Renew that stops, as if it was killed, when the given number of devices have the new program. If renamed is true, it stops after the
// directories were exchanged.
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

// AddRecord creates a record with a manifest under the next free number, without the other steps of Install. The caller must hold the lock.
func (s *State) AddRecord(manifest []byte) (number int, err error) {
	incomplete := func(n int) bool { return !s.has(n, pinManifest) }
	if err := s.sweepIf(incomplete); err != nil {
		return 0, err
	}
	return s.pinGeneration(nil, manifest, 0)
}
