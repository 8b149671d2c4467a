package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Times of the monitor's goroutine.
const (
	// every is how often the devices are read.
	every = 5 * time.Second
	// silence is how old a reading may be before the driver counts as hanging.
	silence = time.Minute
	// rest is how long nobody listens after the driver refused to tell events.
	rest = every
	// patience is how long Close waits for the driver.
	patience = 5 * time.Second
)

// Options of a Monitor.
type Options struct {
	Clock clock.Clock
	// Log gets the driver's events; nil: nobody does.
	Log *slog.Logger
}

// Monitor watches the GPUs. Its methods may be called from any goroutine, and none of them waits for the driver.
type Monitor struct {
	clock clock.Clock
	log   *slog.Logger
	from  driver // nil where there is none
	stop  chan struct{}
	done  chan struct{}

	closing sync.Once
	closed  error // what Close found

	mu       sync.Mutex // guards what follows; never held while the driver is asked
	at       time.Time
	readings []Reading
	events   []Event
	counts   map[string]map[uint64]uint64 // events by UUID and XID
	broken   map[string]string            // the first event that broke a device, by UUID
}

// Open lists the devices, reads them, and starts to watch them. Without a driver or a device it watches nothing, which is
// no error.
func Open(o Options) (*Monitor, error) {
	from, err := open()
	if err != nil {
		return nil, err
	}
	return start(from, o)
}

// List returns the devices of this moment.
func List() ([]Device, error) {
	from, err := open()
	if err != nil || from == nil {
		return nil, err
	}
	devices, err := from.devices()
	return devices, errors.Join(err, from.close())
}

func start(from driver, o Options) (*Monitor, error) {
	m := &Monitor{clock: o.Clock, log: o.Log, from: from, stop: make(chan struct{}), done: make(chan struct{}),
		counts: map[string]map[uint64]uint64{}, broken: map[string]string{}}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if from == nil {
		return m, nil
	}
	devices, err := from.devices()
	if err != nil {
		return nil, errors.Join(err, from.close())
	}
	if len(devices) == 0 {
		m.from = nil
		return m, from.close()
	}
	m.sample(devices)
	go m.watch(devices)
	return m, nil
}

// watch reads the devices and listens for events, until Close.
func (m *Monitor) watch(devices []Device) {
	defer close(m.done)
	deaf := false // the driver's refusal is logged once
	for {
		select {
		case <-m.stop:
			return
		default:
		}
		if m.clock.Since(m.last()) >= every {
			m.sample(devices)
		}
		e, ok, err := m.from.wait()
		switch {
		case err != nil:
			if !deaf {
				m.log.Info("The driver tells no GPU events", "message", err.Error())
			}
			deaf = true
			timer := m.clock.NewTimer(rest)
			select {
			case <-m.stop:
			case <-timer.C():
			}
			timer.Stop()
		case ok:
			m.record(e)
		}
	}
}

func (m *Monitor) last() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

// sample reads all devices.
func (m *Monitor) sample(devices []Device) {
	readings := make([]Reading, len(devices))
	for i, d := range devices {
		readings[i] = m.from.read(d)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.readings = m.clock.Now(), readings
}

// maxCodes bounds how many different XIDs of a device are counted.
const maxCodes = 64

// record keeps an event.
func (m *Monitor) record(e Event) {
	e.At = m.clock.Now()
	m.log.Warn("The GPU driver reported an event", "index", e.Index, "uuid", e.UUID, "xid", e.XID, "severity", string(e.Severity), "message", e.Says)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events = append(m.events, e); len(m.events) > Kept {
		m.events = slices.Delete(m.events, 0, len(m.events)-Kept)
	}
	of := m.counts[e.UUID]
	if of == nil {
		of = map[uint64]uint64{}
		m.counts[e.UUID] = of
	}
	if _, known := of[e.XID]; known || len(of) < maxCodes {
		of[e.XID]++
	}
	if e.Severity == Broken && m.broken[e.UUID] == "" {
		m.broken[e.UUID] = e.Says
	}
}

// Snapshot returns the last readings and events. The readings are some seconds old at most, unless the driver hangs: then At
// is older.
func (m *Monitor) Snapshot() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Snapshot{At: m.at, Devices: slices.Clone(m.readings), Events: slices.Clone(m.events)}
	for i := range s.Devices {
		s.Devices[i].XIDs = maps.Clone(m.counts[s.Devices[i].UUID])
	}
	return s
}

// UnhealthyError says which devices are broken and why.
type UnhealthyError struct{ Reasons []string }

func (e *UnhealthyError) Error() string { return "gpu: " + strings.Join(e.Reasons, "; ") }

// Health returns an *UnhealthyError where a device is broken or the driver hangs, else the error of ctx or nil. A device that
// was broken stays so until the process ends: what ran on it can't be trusted.
func (m *Monitor) Health(ctx context.Context) error {
	if m.from == nil {
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var reasons []string
	for _, r := range m.readings {
		for _, why := range r.faults(m.broken[r.UUID]) {
			reasons = append(reasons, fmt.Sprintf("device %d (%s) %s", r.Index, r.UUID, why))
		}
	}
	if why := m.broken[""]; why != "" {
		reasons = append(reasons, "a device reported "+why)
	}
	if old := m.clock.Since(m.at); old > silence {
		reasons = append(reasons, fmt.Sprintf("the driver hasn't answered for %d s", int(old.Seconds())))
	}
	if len(reasons) > 0 {
		return &UnhealthyError{Reasons: reasons}
	}
	return ctx.Err()
}

// faults are why a device is broken: what it says itself, and what the driver reported.
func (r Reading) faults(reported string) []string {
	var f []string
	if r.Failure != "" {
		f = append(f, r.Failure)
	}
	if r.RowsFailed {
		f = append(f, "has rows of memory that can't be replaced")
	}
	if reported != "" {
		f = append(f, "reported "+reported)
	}
	return f
}

// Close ends the watch. It returns an error where the driver hangs and the watch is left behind.
func (m *Monitor) Close() error {
	m.closing.Do(func() { m.closed = m.end() })
	return m.closed
}

func (m *Monitor) end() error {
	if m.from == nil {
		return nil
	}
	close(m.stop)
	timer := m.clock.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-m.done:
		return m.from.close()
	case <-timer.C():
		return fmt.Errorf("gpu: end NVML: the driver hasn't answered for %d s", int(patience.Seconds()))
	}
}
