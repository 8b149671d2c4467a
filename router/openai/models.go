package openai

import "strconv"

// Model is one entry of the list of models.
type Model struct {
	// ID is the name that clients ask for.
	ID string
	// Created is in seconds since 1970.
	Created int64
	// Adapter says that it is an adapter, of the model Parent, which is empty where that isn't served itself.
	Adapter bool
	Parent  string
}

// OwnedBy is who owns each model, as far as clients are told.
const OwnedBy = "ringfleet"

// AppendModel appends the object of one model.
func AppendModel(dst []byte, m Model) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, m.ID)
	dst = append(dst, `,"object":"model","created":`...)
	dst = strconv.AppendInt(dst, m.Created, 10)
	dst = append(dst, `,"owned_by":"`+OwnedBy+`"`...)
	if m.Adapter {
		dst = appendNullable(append(dst, `,"parent":`...), m.Parent)
	}
	return append(dst, '}')
}

// AppendModels appends the list of models.
func AppendModels(dst []byte, models []Model) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, m := range models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendModel(dst, m)
	}
	return append(dst, `]}`...)
}
