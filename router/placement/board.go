package placement

import (
	"sync"
	"sync/atomic"
)

// Board holds the current view of every model. Readers take no lock.
type Board struct {
	views   atomic.Pointer[map[string]*View] // by the model's UID; the map never changes
	writing sync.Mutex                       // one Set at a time
}

// Set replaces all views: workers by the model's UID. Rings whose members stay are kept.
func (b *Board) Set(models map[string][]Worker, virtualNodes int) {
	b.writing.Lock()
	defer b.writing.Unlock()
	next := make(map[string]*View, len(models))
	for uid, workers := range models {
		next[uid] = NewView(b.View(uid), uid, workers, virtualNodes)
	}
	b.views.Store(&next)
}

// View is the current view of a model; nil when there is none, which is as good as one without workers.
func (b *Board) View(modelUID string) *View {
	if views := b.views.Load(); views != nil {
		return (*views)[modelUID]
	}
	return nil
}

// Place is the function Place on the model's current view.
func (b *Board) Place(modelUID string, key []byte, exclude ...string) (Worker, error) {
	return Place(b.View(modelUID), key, exclude...)
}
