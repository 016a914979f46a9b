//! Subresources: status, scale, finalize, binding, eviction, and those that are refused in words.

use super::Call;
use super::respond::Reply;
use super::route::Verb;
use super::write::Part;
use crate::model::Subresource;
use crate::model::status::Status;

impl Call<'_> {
    pub(crate) async fn run_subresource(&mut self, verb: Verb) -> Result<Reply, Status> {
        let wanted = self.path.subresource.clone().unwrap_or_default();
        let found = self.resource.subresource(&wanted).cloned();
        match (found, verb) {
            (None, _) if self.resource.custom.is_some() => Err(Status::not_found(&self.resource, self.name())),
            (None, _) => Err(Status::no_such_path()),
            (Some(Subresource::Status), Verb::Get) => self.get().await,
            (Some(Subresource::Status), Verb::Update) => self.update_part(Part::Status).await,
            (Some(Subresource::Status), Verb::Patch) => self.patch_part(Part::Status).await,
            (Some(Subresource::Part(portion)), _) if !portion.verbs.contains(&verb.as_str()) => {
                Err(Status::method_not_allowed())
            }
            (Some(Subresource::Part(_)), Verb::Get) => self.get().await,
            (Some(Subresource::Part(portion)), Verb::Update) => self.update_part(Part::Of(portion)).await,
            (Some(Subresource::Part(portion)), Verb::Patch) => self.patch_part(Part::Of(portion)).await,
            (Some(Subresource::Scale(paths)), Verb::Get) => self.get_scale(&paths).await,
            (Some(Subresource::Scale(paths)), Verb::Update) => self.update_scale(&paths).await,
            (Some(Subresource::Scale(paths)), Verb::Patch) => self.patch_scale(&paths).await,
            (Some(Subresource::Document(document)), Verb::Create) => self.take_document(document).await,
            (Some(Subresource::Connect(connection)), _) if !connection.to.verbs().contains(&verb.as_str()) => {
                Err(Status::method_not_allowed())
            }
            (Some(Subresource::Connect(connection)), _) => self.connect(connection).await,
            (_, verb) if self.resource.custom.is_some() => Err(Status::not_supported(&self.resource, verb.as_str())),
            _ => Err(Status::method_not_allowed()),
        }
    }
}
