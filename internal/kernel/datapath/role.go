// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// role says which generation decides on a device that runs a certain program, before and after the deadline of a trial; 0 means none. For a
// generation's own program both are that generation.
type role struct {
	during, after int
	trial         *Trial // nil for a generation's own program
}

// now returns the generation that decides now.
func (r role) now() int {
	if r.trial != nil && r.trial.Expired() {
		return r.after
	}
	return r.during
}

// roles returns the roles of the programs that are pinned in the state directory. It leaves out programs that another command has removed meanwhile.
func (s *State) roles() (map[ebpf.ProgramID]role, error) {
	roles := map[ebpf.ProgramID]role{}
	note := func(path string, r role) error {
		id, err := pinnedID(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if _, known := roles[id]; err == nil && !known {
			roles[id] = r
		}
		return err
	}
	trials, err := s.trials()
	if err != nil {
		return nil, err
	}
	for _, t := range trials {
		for _, v := range variants {
			if err := note(s.path(trialName(t.New), v.pin()), v.role(t)); err != nil {
				return nil, err
			}
		}
	}
	numbers, err := s.generations()
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		for _, pin := range pins {
			if err := note(s.path(generationName(n), pin), role{during: n, after: n}); err != nil {
				return nil, err
			}
		}
	}
	renewals, err := s.renewals()
	if err != nil {
		return nil, err
	}
	for _, n := range renewals {
		for _, pin := range pins {
			if err := note(s.path(renewalName(n), pin), role{during: n, after: n}); err != nil {
				return nil, err
			}
		}
	}
	return roles, nil
}

// pinnedID returns the ID of a pinned program.
func pinnedID(path string) (ebpf.ProgramID, error) {
	prog, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		return 0, err
	}
	defer prog.Close()
	id, err := programID(prog)
	if err != nil {
		return 0, fmt.Errorf("program %s: %w", path, err)
	}
	return id, nil
}

// programID reads the ID of a program, which is in the first two words of struct bpf_prog_info (linux/bpf.h). The daemon reads it several times a
// second. (*ebpf.Program).Info would also read the kernel's data about maps, functions and lines.
func programID(prog *ebpf.Program) (ebpf.ProgramID, error) {
	var info struct{ kind, id uint32 }
	var pinned runtime.Pinner
	pinned.Pin(&info)
	defer pinned.Unpin()
	attr := struct {
		fd, size uint32
		info     uint64
	}{uint32(prog.FD()), uint32(unsafe.Sizeof(info)), uint64(uintptr(unsafe.Pointer(&info)))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return 0, errno
	}
	return ebpf.ProgramID(info.id), nil
}

// situation describes the programs of the devices when a change starts.
type situation struct {
	devices []*Device
	roles   map[ebpf.ProgramID]role
	trial   *Trial // the newest trial that a device runs, nil when there is none
	base    int    // the generation to return to, 0 when there is none
	mixed   bool   // some devices run another generation than base, because of a trial or of a change that died half way
}

// situation reads the state of the devices. The caller must hold the lock, and must close the result.
//
// base is the generation that last ran on all devices. A change that died half way leaves two generations. The lower number is usually the one that
// ran first. After a Rollback that died, which returns to a lower number, the lower number is the one to which it was returning. base is then that
// one, which is also the better choice.
func (s *State) situation() (*situation, error) {
	devices, err := s.devices()
	if err != nil {
		return nil, err
	}
	v := &situation{devices: devices}
	if v.roles, err = s.roles(); err != nil {
		v.close()
		return nil, err
	}
	for _, d := range devices {
		r, known := v.roles[d.program]
		if !known {
			v.mixed = true
			continue
		}
		ran := r.during
		if r.trial != nil {
			ran = r.trial.Old
			if v.trial == nil || v.trial.New < r.trial.New {
				v.trial = r.trial
			}
		}
		if ran != 0 && (v.base == 0 || ran < v.base) {
			v.base = ran
		}
	}
	v.mixed = v.mixed || slices.ContainsFunc(devices, func(d *Device) bool {
		r := v.roles[d.program]
		return r.trial != nil || r.during != v.base
	})
	return v, nil
}

func (v *situation) close() { closeDevices(v.devices) }
