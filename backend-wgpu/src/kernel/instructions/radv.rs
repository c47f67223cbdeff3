//! Compilation of SPIR-V by the Vulkan driver that the environment chooses, without executing anything.

#![allow(clippy::unwrap_used, reason = "a test")]

use ash::{khr, vk};
use core::ffi::CStr;

/// Machine code of a kernel and figures of it.
pub(super) struct MachineCode {
    pub assembly: String,
    pub bytes: u64,
    pub registers: u64,
    /// Number of vector and scalar registers that are in memory for want of space.
    pub spills: u64,
}

/// Bindings that a layout declares: parameters are a uniform, all others storage.
const BINDINGS: u32 = 20;

/// Compiles the entry point `main`. `None` without a device.
pub(super) fn compile(spirv: &[u32]) -> Option<MachineCode> {
    compile_with(spirv, &[khr::pipeline_executable_properties::NAME])
}

/// Compiles the entry point `main` of a kernel with cooperative matrices. `None` if the device has none.
pub(super) fn compile_cooperative(spirv: &[u32]) -> Option<MachineCode> {
    compile_with(spirv, &[khr::pipeline_executable_properties::NAME, khr::cooperative_matrix::NAME])
}

fn compile_with(spirv: &[u32], extensions: &[&CStr]) -> Option<MachineCode> {
    // SAFETY: the loader is the system's, all handles are those created here, and structures live until the calls that
    // they are passed to return. Handles are left to the end of the process.
    unsafe {
        let entry = ash::Entry::load().ok()?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let instance =
            entry.create_instance(&vk::InstanceCreateInfo::default().application_info(&application), None).ok()?;
        let physical = *instance.enumerate_physical_devices().ok()?.first()?;
        let offered = instance.enumerate_device_extension_properties(physical).unwrap();
        let is_offered = |name: &&CStr| offered.iter().any(|one| one.extension_name_as_c_str().unwrap() == *name);
        if !extensions.iter().all(is_offered) {
            return None;
        }
        let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        let mut executable = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default();
        let (mut v11, mut v12, mut v13) = (
            vk::PhysicalDeviceVulkan11Features::default(),
            vk::PhysicalDeviceVulkan12Features::default(),
            vk::PhysicalDeviceVulkan13Features::default(),
        );
        let mut features = vk::PhysicalDeviceFeatures2::default()
            .push_next(&mut executable)
            .push_next(&mut v11)
            .push_next(&mut v12)
            .push_next(&mut v13);
        if extensions.contains(&khr::cooperative_matrix::NAME) {
            features = features.push_next(&mut matrices);
        }
        instance.get_physical_device_features2(physical, &mut features);
        features.features.robust_buffer_access = vk::FALSE;
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let extensions: Vec<_> = extensions.iter().map(|name| name.as_ptr()).collect();
        let descriptor = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut features);
        let device = instance.create_device(physical, &descriptor, None).unwrap();
        let module = device.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(spirv), None).unwrap();
        let bindings: Vec<_> = (0..BINDINGS)
            .map(|binding| {
                let kind = [vk::DescriptorType::STORAGE_BUFFER, vk::DescriptorType::UNIFORM_BUFFER];
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(kind[usize::from(binding == 0)])
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let set = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        let sets = [device.create_descriptor_set_layout(&set, None).unwrap()];
        let layout =
            device.create_pipeline_layout(&vk::PipelineLayoutCreateInfo::default().set_layouts(&sets), None).unwrap();
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(c"main");
        let flags = vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR
            | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR;
        let pipeline = vk::ComputePipelineCreateInfo::default().flags(flags).stage(stage).layout(layout);
        let pipeline = device.create_compute_pipelines(vk::PipelineCache::null(), &[pipeline], None).unwrap()[0];
        let properties = khr::pipeline_executable_properties::Device::new(&instance, &device);
        let which = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline);
        let statistics = properties.get_pipeline_executable_statistics(&which).unwrap();
        let number = |name: &str| {
            let found = statistics.iter().find(|one| text(one.name_as_c_str().unwrap()) == name);
            found.unwrap_or_else(|| panic!("no statistic {name}")).value.u64
        };
        Some(MachineCode {
            assembly: assembly(&properties, &which),
            bytes: number("Code size"),
            registers: number("VGPRs"),
            spills: number("Spilled VGPRs") + number("Spilled SGPRs"),
        })
    }
}

fn text(name: &CStr) -> &str {
    name.to_str().unwrap()
}

/// Returns the text of the last representation, the assembly. The first call gets its length, the second its bytes.
unsafe fn assembly(
    properties: &khr::pipeline_executable_properties::Device, which: &vk::PipelineExecutableInfoKHR<'_>,
) -> String {
    // SAFETY: as in `compile`; the second call gets as many bytes as the first one returned.
    unsafe {
        let get = properties.fp().get_pipeline_executable_internal_representations_khr;
        let mut count = 0;
        get(properties.device(), which, &mut count, core::ptr::null_mut()).result().unwrap();
        let mut all = vec![vk::PipelineExecutableInternalRepresentationKHR::default(); count as usize];
        get(properties.device(), which, &mut count, all.as_mut_ptr()).result().unwrap();
        let mut bytes: Vec<Vec<u8>> = all.iter().map(|one| vec![0; one.data_size]).collect();
        for (one, bytes) in all.iter_mut().zip(&mut bytes) {
            one.p_data = bytes.as_mut_ptr().cast();
        }
        get(properties.device(), which, &mut count, all.as_mut_ptr()).result().unwrap();
        let last = bytes.last().expect("a representation");
        text(CStr::from_bytes_until_nul(last).unwrap()).to_owned()
    }
}
